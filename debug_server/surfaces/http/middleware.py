"""The middleware of every request: request id, limit on the body, audit record, unexpected exceptions."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from debug_server.errors import DebugServerError, PayloadTooLargeError, UnavailableError
from debug_server.service import audit
from debug_server.surfaces.http.connections import CONNECTION
from debug_server.surfaces.http.refusals import error_response

MAX_BODY = 23 << 20  # a patch of 16 MiB as base64, and what comes with it
OWN_ERROR_FORMAT = ("/v1/",)  # paths of a part that limits bodies and refuses requests itself, in its own format
_RECORD = "debug_server.record"  # its key in an ASGI scope
_MAX_REQUEST_ID = 128
_INTERNAL_CLOSE = 1011
_CLIENT_LEFT = 499  # the status that proxies log if the client disconnects early

_LOG = logging.getLogger(__name__)


def record_of(connection: HTTPConnection) -> audit.Record:
    """The audit record of the request that is being served."""
    return record_in(connection.scope)


def record_in(scope: Scope) -> audit.Record:
    """The same, by its scope."""
    record: audit.Record = scope[_RECORD]
    return record


class RequestMiddleware:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, *, find: Callable[[Scope], ASGIApp | None], draining: Callable[[], bool]) -> None:
        """``find`` returns the application of a request; None: ``app`` serves it."""
        self._app = app
        self._find = find
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        record = scope[_RECORD] = audit.Record(
            method=scope.get("method", "WS"), path=scope["path"], request_id=_request_id(scope)
        )
        audit.begin(record)
        if (connection := scope.get("state", {}).get(CONNECTION)) is not None:
            connection.record = record  # its caller decides which connection is closed when all are in use
        own_shape = scope["path"].startswith(OWN_ERROR_FORMAT)
        messages = _RecordedMessages(record, receive, send, bounded=not own_shape)
        try:
            if scope["type"] == "http" and not own_shape and (error := self._refused(scope)):
                await error_response(error)(scope, messages.receive, messages.send)
            else:
                await (self._find(scope) or self._app)(scope, messages.receive, messages.send)
        except (ClientDisconnect, WebSocketDisconnect):
            record.status = _CLIENT_LEFT
        except DebugServerError as error:  # during a stream: the connection is cut, so that the client resumes
            fields = {**_where(record), "code": error.code, "error": str(error)}
            _LOG.warning("stream_cut", extra=fields)
            await messages.fail(scope)
        except Exception:  # noqa: BLE001 - a bug must not expose internals to the caller
            _LOG.exception("request_failed", extra=_where(record))
            await messages.fail(scope)
        finally:
            record.write()

    def _refused(self, scope: Scope) -> DebugServerError | None:
        if scope["method"] == "POST" and self._draining():
            return UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > MAX_BODY:
            return PayloadTooLargeError(f"the body has {int(length)} bytes: the limit is {MAX_BODY}")
        return None


class _RecordedMessages:
    """The messages of one request: limits the body and records the status."""

    __slots__ = ("_bounded", "_receive", "_record", "_send", "_taken")

    def __init__(self, record: audit.Record, receive: Receive, send: Send, *, bounded: bool) -> None:
        self._record = record
        self._receive = receive
        self._send = send
        self._bounded = bounded
        self._taken = 0

    async def receive(self) -> Message:
        """The next message from the client; PayloadTooLargeError if the body is too long."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            if self._bounded and self._taken > MAX_BODY:
                raise PayloadTooLargeError(f"the body has more than {MAX_BODY} bytes, which is the limit")
        return message

    async def send(self, message: Message) -> None:
        """Send a message to the client."""
        if message["type"] == "http.response.start":
            self._record.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", str(self._record.request_id).encode()),
            ]
        elif message["type"] == "websocket.accept":
            self._record.status = 101
        elif message["type"] == "websocket.close":
            self._record.status = message.get("code", 1000)
        await self._send(message)

    async def fail(self, scope: Scope) -> None:
        """Send an error if the response has not started; otherwise the connection is cut."""
        if scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": _INTERNAL_CLOSE, "reason": "internal_error"})
        elif not self._record.status:
            message = f"internal error: see the server's log for request id {self._record.request_id}"
            await error_response(DebugServerError(message))(scope, self.receive, self.send)


def _request_id(scope: Scope) -> str:
    given = _header(scope, b"x-request-id").decode("latin-1")
    wanted = 0 < len(given) <= _MAX_REQUEST_ID and given.isascii() and given.isprintable()
    return given if wanted else secrets.token_hex(8)


def _where(record: audit.Record) -> dict[str, str | None]:
    return {"request_id": record.request_id, "path": audit.short(record.path)}


def _header(scope: Scope, name: bytes) -> bytes:
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return b""
