"""Streamed responses: sent at the client's pace, ended when the client disconnects or the server shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from enum import Enum

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from debug_server.service.followers import Followers
from debug_server.surfaces.http.middleware import record_in

HEARTBEAT = b": heartbeat\n\n"
_NOTICE_SECONDS = 1.0
_PIECE = 16 << 10


class Ending(Enum):
    """How a stream ended."""

    DONE = "done"  # everything was sent
    CUT = "cut"  # the client disconnected, or the server shuts down
    TOKEN_INVALID = "token_invalid"  # the client's token has expired or was revoked


class OpenStreams:
    """The open streams, so that a server that shuts down can end them."""

    def __init__(self, followers: Followers) -> None:
        self._followers = followers
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending_all = False

    def check_room(self) -> None:
        """TooManyFollowersError if the limit is reached."""
        self._followers.check_room()

    async def run(self, scope: Scope, sender: asyncio.Task[None], watcher: asyncio.Task[None]) -> Ending:
        """Run until one task is done and cancel the other; raises the sender's error if the client is connected."""
        token_invalid = False

        def disconnect() -> None:
            nonlocal token_invalid
            token_invalid = True
            sender.cancel()

        self._tasks.add(sender)
        if self._ending_all:
            sender.cancel()
        try:
            with self._followers.registered(record_in(scope).caller, disconnect):
                await asyncio.wait({sender, watcher}, return_when=asyncio.FIRST_COMPLETED)
            gone = await _client_disconnected(sender, watcher)
        finally:
            self._tasks.discard(sender)
            sender.cancel()
            watcher.cancel()
            await asyncio.wait({sender, watcher})
        if token_invalid:
            return Ending.TOKEN_INVALID
        if sender.cancelled() or gone:
            return Ending.CUT
        sender.result()
        return Ending.DONE

    def end_all(self) -> None:
        """End all streams, including later ones."""
        self._ending_all = True
        for task in self._tasks:
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)


class SharedBytes(Response):
    """Sends bytes that many answers share at the client's pace: what it does not take is not copied for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for at in range(0, len(self.body), _PIECE):
            piece = bytes(self.body[at : at + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": at + _PIECE < len(self.body)})
            await asyncio.sleep(0)  # others first; and asyncio would log each write to a client that has left


class Stream(Response):
    """Sends the pieces of an iterator; an incomplete response is cut, so that the client can detect it."""

    def __init__(
        self, pieces: AsyncGenerator[bytes, None], streams: OpenStreams, *, media_type: str, headers: Mapping[str, str]
    ) -> None:
        streams.check_room()  # while an error response is still possible
        super().__init__(None, 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers}, media_type)
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._pieces = pieces
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sender = asyncio.ensure_future(self._send(send))
        watcher = asyncio.ensure_future(_departure(receive))
        if await self._streams.run(scope, sender, watcher) is Ending.DONE:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _client_disconnected(sender: asyncio.Task[None], watcher: asyncio.Task[None]) -> bool:
    """Whether the client has disconnected; the sender may notice it before the watcher."""
    error = sender.exception() if sender.done() and not sender.cancelled() else None
    if isinstance(error, RuntimeError):  # raised by uvicorn for a message after the connection has closed
        await asyncio.wait({watcher}, timeout=_NOTICE_SECONDS)
    return isinstance(error, OSError | WebSocketDisconnect) or (watcher.done() and not _ended(sender))


def _ended(sender: asyncio.Task[None]) -> bool:
    return sender.done() and not sender.cancelled() and sender.exception() is None


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def with_heartbeats(pieces: AsyncGenerator[bytes, None], seconds: float) -> AsyncGenerator[bytes, None]:
    """The pieces, and a heartbeat after every ``seconds`` without one."""
    async with aclosing(pieces):
        while True:
            next_piece = asyncio.ensure_future(anext(pieces, None))
            try:
                while not (await asyncio.wait({next_piece}, timeout=seconds))[0]:
                    yield HEARTBEAT
            finally:
                if not next_piece.done():
                    next_piece.cancel()
                    await asyncio.wait({next_piece})
            piece = next_piece.result()
            if piece is None:
                return
            yield piece
