"""One request on its way: its body within bounds, an answer of either form, and the client that may leave meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from debug_server.gateway.observation import Observed
from debug_server.gateway.refusals import Refusal, refusal_for

MAX_BODY = 16 << 20
_DISCARDED = 64 << 20  # of a body that is too large: who is still sending does not hear an answer
_DISCARD_SECONDS = 10.0
_LEAST_SPEED = 64 << 10  # of a body, in bytes a second
_STREAM_HEADERS = {"Cache-Control": "no-cache, no-store", "X-Accel-Buffering": "no"}

T = TypeVar("T")


class Exchange:
    """A request, and the way back."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, observed: Observed) -> None:
        self.request = Request(scope, receive, send)
        self.observed = observed
        self._scope = scope
        self._receive = receive
        self._send = send
        self.headers: dict[str, str] = {}  # for whatever the answer is

    async def answer(self, response: Response) -> None:
        """Send a whole response."""
        response.headers.update(self.headers)
        self.observed.status = response.status_code
        await response(self._scope, self._receive, self._send)

    async def json(self, content: Any) -> None:
        """Send a whole answer."""
        await self.answer(JSONResponse(content))

    async def body(self, *, patience: float) -> dict[str, Any]:
        """The JSON object that was sent; Refusal when it is none, too large, or comes too slowly.

        ``patience`` in seconds is for the whole of it, and as much more as a slow line needs for what has come.
        """
        declared = self.request.headers.get("content-length", "")
        data = bytearray()
        size = int(declared) if declared.isascii() and declared.isdigit() else 0
        stream = self.request.stream()
        if size <= MAX_BODY:
            await self._collect(stream, data, patience)
            size = len(data)
        if size > MAX_BODY:
            data.clear()
            await self._discard(stream)
            raise Refusal("request_entity_too_large", f"the body has more than {MAX_BODY} bytes, which is the bound")
        return _parsed(bytes(data))

    async def _collect(self, stream: AsyncGenerator[bytes, None], data: bytearray, patience: float) -> None:
        """Up to its end, or the first byte too many; whoever sends holds one of few places meanwhile."""
        clock = asyncio.get_running_loop().time
        began = clock()
        self.headers["Connection"] = "close"  # until all of it came: the rest would be taken for the next request
        try:
            async with asyncio.timeout(patience) as deadline:
                async for piece in stream:
                    data += piece
                    if len(data) > MAX_BODY:
                        return
                    deadline.reschedule(began + patience + len(data) / _LEAST_SPEED)
        except TimeoutError:
            told = f"only {len(data)} bytes of the body came within {clock() - began:.0f} s: send it faster"
            raise Refusal("request_timeout", told) from None
        except ClientDisconnect:
            raise Refusal("request_aborted", "the client left before its request was complete") from None
        del self.headers["Connection"]

    async def _discard(self, stream: AsyncGenerator[bytes, None]) -> None:
        left = _DISCARDED
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DISCARD_SECONDS):
                async for piece in stream:
                    left -= len(piece)
                    if left < 0:
                        return

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """What ``work`` gives; a client that leaves cancels it, and the exchange ends as request_aborted."""
        working = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(self._departure())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Refusal("request_aborted", "the client left before the answer was complete")
            return working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.wait({working, watching})

    async def _departure(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def stream(
        self, pieces: AsyncGenerator[bytes, None], failure: Callable[[Refusal], bytes], kind: str = "text/event-stream"
    ) -> None:
        """Send pieces as they come; what fails before the first is a plain refusal, later the stream's last event."""
        await self.unless_gone(self._stream(pieces, failure, kind))

    async def _stream(
        self, pieces: AsyncGenerator[bytes, None], failure: Callable[[Refusal], bytes], kind: str
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
            refusal = refusal_for(error)
            self.observed.failed(refusal, error)
            await self._piece(failure(refusal))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, kind: str) -> None:
        self.observed.status = 200
        self.observed.streaming()
        response = Response(None, 200, {**_STREAM_HEADERS, **self.headers}, kind)
        headers = [item for item in response.raw_headers if item[0] != b"content-length"]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _piece(self, piece: bytes) -> None:
        with suppress(OSError):  # the client has just left: the other task sees it, too
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal("invalid_json", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Refusal("invalid_request_error", f"the body must be a JSON object, not a {type(value).__name__}")
    return value
