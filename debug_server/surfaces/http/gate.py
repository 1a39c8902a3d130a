"""What every request passes: its id, its size, its audit record, and the end of every unexpected exception."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from debug_server.errors import DebugServerError, PayloadTooLargeError, UnavailableError
from debug_server.service import audit
from debug_server.surfaces.http.connections import CONNECTION
from debug_server.surfaces.http.refusals import refusal

MAX_BODY = 17 << 20  # a patch of 16 MiB and what comes with it
OWN_SHAPE = ("/v1/",)  # below these, bodies and a drain are refused by the part itself, in the shape of its API
_NOTES = "debug_server.notes"
_MAX_REQUEST_ID = 128
_INTERNAL_CLOSE = 1011
_CLIENT_LEFT = 499  # as proxies log a request whose client did not wait for its answer

_AUDIT = logging.getLogger("debug_server.api")
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Notes(audit.Notes):
    """What is learnt about one request on its way."""

    request_id: str
    status: int = 0
    started: float = field(default_factory=time.perf_counter)


def notes_of(connection: HTTPConnection) -> Notes:
    """The notes of the request that is being served."""
    return notes_in(connection.scope)


def notes_in(scope: Scope) -> Notes:
    """The same, by its scope."""
    notes: Notes = scope[_NOTES]
    return notes


class Gate:
    """ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, *, draining: Callable[[], bool]) -> None:
        self._app = app
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        notes = scope[_NOTES] = Notes(request_id=_request_id(scope))
        audit.begin(notes)
        if (connection := scope.get("state", {}).get(CONNECTION)) is not None:
            connection.notes = notes  # whose caller decides which connection makes room for another
        own_shape = scope["path"].startswith(OWN_SHAPE)
        passage = _Passage(notes, receive, send, bounded=not own_shape)
        try:
            if scope["type"] == "http" and not own_shape and (error := self._refused(scope)):
                await refusal(error)(scope, passage.receive, passage.send)
            else:
                await self._app(scope, passage.receive, passage.send)
        except (ClientDisconnect, WebSocketDisconnect):
            notes.status = _CLIENT_LEFT
        except DebugServerError as error:  # in the midst of a stream: the client sees it cut off, and comes again
            fields = {"request_id": notes.request_id, "path": scope["path"], "code": error.code, "error": str(error)}
            _LOG.warning("stream_cut", extra=fields)
            await passage.fail(scope)
        except Exception:  # noqa: BLE001 - the boundary: a defect must not tell the caller what is inside
            _LOG.exception("request_failed", extra={"request_id": notes.request_id, "path": scope["path"]})
            await passage.fail(scope)
        finally:
            _record(scope, notes)

    def _refused(self, scope: Scope) -> DebugServerError | None:
        if scope["method"] == "POST" and self._draining():
            return UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)
        length = _header(scope, b"content-length")
        if length.isdigit() and int(length) > MAX_BODY:
            return PayloadTooLargeError(f"the body has {int(length)} bytes: at most {MAX_BODY} are taken")
        return None


class _Passage:
    """The request's two directions, counted and noted."""

    __slots__ = ("_bounded", "_notes", "_receive", "_send", "_taken")

    def __init__(self, notes: Notes, receive: Receive, send: Send, *, bounded: bool) -> None:
        self._notes = notes
        self._receive = receive
        self._send = send
        self._bounded = bounded
        self._taken = 0

    async def receive(self) -> Message:
        """The next message of the client's; PayloadTooLargeError when the body grows too long."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            if self._bounded and self._taken > MAX_BODY:
                raise PayloadTooLargeError(f"the body has more than {MAX_BODY} bytes")
        return message

    async def send(self, message: Message) -> None:
        """Pass a message on to the client."""
        if message["type"] == "http.response.start":
            self._notes.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._notes.request_id.encode())]
        elif message["type"] == "websocket.accept":
            self._notes.status = 101
        elif message["type"] == "websocket.close":
            self._notes.status = message.get("code", 1000)
        await self._send(message)

    async def fail(self, scope: Scope) -> None:
        """Answer what went wrong, if an answer can still be given; else the connection is cut."""
        if scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": _INTERNAL_CLOSE, "reason": "internal_error"})
        elif not self._notes.status:
            message = f"the server failed; its log tells more under the request id {self._notes.request_id}"
            await refusal(DebugServerError(message))(scope, self.receive, self.send)


def _record(scope: Scope, notes: Notes) -> None:
    if _AUDIT.isEnabledFor(logging.INFO):
        fields = {
            "method": scope.get("method", "WS"),
            "path": scope["path"],
            "status": notes.status,
            "duration_ms": round((time.perf_counter() - notes.started) * 1000, 3),
            "token_id": notes.caller.token_id if notes.caller else None,
            "token_name": notes.caller.name if notes.caller else None,
            "request_id": notes.request_id,
        }
        _AUDIT.info("api.request", extra=fields)


def _request_id(scope: Scope) -> str:
    given = _header(scope, b"x-request-id").decode("latin-1")
    wanted = 0 < len(given) <= _MAX_REQUEST_ID and given.isascii() and given.isprintable()
    return given if wanted else secrets.token_hex(8)


def _header(scope: Scope, name: bytes) -> bytes:
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return b""
