"""One HTTP exchange: reads a limited body, sends a whole or streamed answer, and notices when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from debug_server.gateway.api_errors import ApiError, api_error_for
from debug_server.gateway.request_record import RequestRecord

MAX_BODY = 16 << 20
_MAX_DISCARDED = 64 << 20  # of a body that is too large: a client reads the answer after it has sent its body
_DISCARD_SECONDS = 10.0
_MIN_SPEED = 64 << 10  # of a body, in bytes per second
_STREAM_HEADERS = {"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"}

T = TypeVar("T")


class Exchange:
    """A request and how to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, record: RequestRecord) -> None:
        self.request = Request(scope, receive, send)
        self.record = record
        self._scope = scope
        self._receive = receive
        self._send = send
        self.headers: dict[str, str] = {}  # added to every answer

    async def answer(self, response: Response) -> None:
        """Send a whole response."""
        response.headers.update(self.headers)
        self.record.status = response.status_code
        await response(self._scope, self._receive, self._send)

    async def json(self, content: Any) -> None:
        """Send a whole answer."""
        await self.answer(JSONResponse(content))

    async def body(self, *, seconds: float) -> dict[str, Any]:
        """The JSON object in the body; ApiError if it is not one, too large, or too slow.

        All of it must arrive within ``seconds``, plus one second for each 64 KiB.
        """
        declared = self.request.headers.get("content-length", "")
        data = bytearray()
        size = int(declared) if declared.isascii() and declared.isdigit() else 0
        stream = self.request.stream()
        if size <= MAX_BODY:
            await self._collect(stream, data, seconds)
            size = len(data)
        if size > MAX_BODY:
            data.clear()
            await self._discard(stream)
            raise ApiError("request_entity_too_large", f"the body is larger than {MAX_BODY} bytes (the limit)")
        return _parsed(bytes(data))

    async def _collect(self, stream: AsyncGenerator[bytes, None], data: bytearray, seconds: float) -> None:
        """Read up to the end or to the first byte over the limit; the request counts as admitted meanwhile."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self.headers["Connection"] = "close"  # until the body is complete: its rest would be read as the next request
        try:
            async with asyncio.timeout(seconds) as deadline:
                async for piece in stream:
                    data += piece
                    if len(data) > MAX_BODY:
                        return
                    deadline.reschedule(began + seconds + len(data) / _MIN_SPEED)
        except TimeoutError:
            message = f"only {len(data)} bytes of the body arrived within {clock() - began:.0f} s: send it faster"
            raise ApiError("request_timeout", message) from None
        except ClientDisconnect:
            raise ApiError("request_aborted", "the client left before its request was complete") from None
        del self.headers["Connection"]

    async def _discard(self, stream: AsyncGenerator[bytes, None]) -> None:
        left = _MAX_DISCARDED
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for piece in stream:
                    left -= len(piece)
                    if left < 0:
                        return

    async def cancel_if_client_leaves(self, work: Awaitable[T]) -> T:
        """The result of ``work``; if the client leaves, cancel it and end the exchange as request_aborted."""
        working = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self._client_left())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ApiError("request_aborted", "the client left before the answer was complete")
            return working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.wait({working, watching})

    async def _client_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def stream(
        self, pieces: AsyncGenerator[bytes, None], failure: Callable[[ApiError], bytes], kind: str = "text/event-stream"
    ) -> None:
        """Send pieces as they come; an error before the first piece is a plain answer, later the last event."""
        await self.cancel_if_client_leaves(self._stream(pieces, failure, kind))

    async def _stream(
        self, pieces: AsyncGenerator[bytes, None], failure: Callable[[ApiError], bytes], kind: str
    ) -> None:
        begun = False
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if not begun:
                        begun = True
                        await self._begin(kind)
                    await self._piece(piece)
        except Exception as error:  # the boundary between a turn and its client
            if not begun:
                raise
            api_error = api_error_for(error)
            self.record.failed(api_error, error)
            await self._piece(failure(api_error))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, kind: str) -> None:
        self.record.status = 200
        self.record.streaming()
        response = Response(None, 200, {**_STREAM_HEADERS, **self.headers}, kind)
        headers = [item for item in response.raw_headers if item[0] != b"content-length"]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _piece(self, piece: bytes) -> None:
        with suppress(OSError):  # the client has left: _client_left notices it, too
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError("invalid_json", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ApiError("invalid_request_error", f"the body must be a JSON object, not a {type(value).__name__}")
    return value
