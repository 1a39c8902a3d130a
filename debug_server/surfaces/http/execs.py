"""``POST /exec``: one request, answered once or as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from debug_server import messages as m
from debug_server.messages import OPERATIONS
from debug_server.messages.execs import Begun, Encoding, encoded, encoding_of
from debug_server.service import Caller, Service
from debug_server.surfaces.http import endpoints
from debug_server.surfaces.http.access import identify
from debug_server.surfaces.http.decoding import from_body
from debug_server.surfaces.http.documented_routes import SSE
from debug_server.surfaces.http.endpoints import KEY_HEADER, Endpoint
from debug_server.surfaces.http.logs import sse
from debug_server.surfaces.http.streaming import OpenStreams, Stream, with_heartbeats

_OPERATION = OPERATIONS["exec_command"]
_WATCH_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecEndpoints:
    """The endpoints of exec."""

    service: Service
    streams: OpenStreams
    heartbeat_seconds: float

    async def run(self, request: Request) -> Response:
        """Answer once; with ``Accept: text/event-stream``, send events."""
        caller = await identify(self.service, request)
        caller.require(_OPERATION.scopes or ())
        message = await from_body(request, m.ExecCommand)
        key = request.headers.get(KEY_HEADER)
        if SSE in request.headers.get("accept", ""):
            return await self._stream(caller, message, key)
        with _cancelled_if_disconnected(request):
            reply = await self.service.perform(caller, _OPERATION, message, key)
        return endpoints.encoded(reply)

    async def _stream(self, caller: Caller, message: m.ExecCommand, key: str | None) -> Response:
        found = self.service.execs.stream(caller, message, idempotency_key=key)
        begun: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        pieces = with_heartbeats(_events(begun, found), self.heartbeat_seconds)
        # Refused, for lack of room, before the command begins: a client that tries again must not run it twice.
        response = Stream(pieces, self.streams, media_type=SSE, headers={})
        begun.set_result(await anext(found))  # before the response starts, so that a refusal has its own status
        return response

    def routes(self) -> dict[str, Endpoint]:
        """Each route by its name, and its endpoint."""
        return {"exec_command": self.run, "exec_in_session": self.run}


@contextmanager
def _cancelled_if_disconnected(request: Request) -> Iterator[None]:
    """End the block with ClientDisconnect when the client disconnects.

    Looked for after a moment only: most commands have ended by then, and a task for each would cost 0.05 ms.
    """
    serving = asyncio.current_task()
    assert serving is not None
    watcher: asyncio.Task[None] | None = None

    async def departure() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        serving.cancel()

    def watch() -> None:
        nonlocal watcher
        watcher = loop.create_task(departure())

    loop = asyncio.get_running_loop()
    later = loop.call_later(_WATCH_SECONDS, watch)
    try:
        yield
    except asyncio.CancelledError:
        if watcher is not None and watcher.done() and not watcher.cancelled() and serving.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        later.cancel()
        if watcher is not None:
            watcher.cancel()


async def _events(
    begun: asyncio.Future[object], found: AsyncGenerator[Begun | m.LogPiece | m.ExecReply, None]
) -> AsyncGenerator[bytes, None]:
    ids = await begun
    assert isinstance(ids, Begun)
    yield sse("begun", 0, ids.model_dump_json())
    decoder = _Decoder()
    async with aclosing(found):
        async for item in found:
            if isinstance(item, m.LogPiece):
                for event in decoder.events(item):
                    yield event
            elif isinstance(item, m.ExecReply):
                for event in decoder.rest():
                    yield event
                yield sse("end", item.log_bytes, item.model_dump_json())


class _Decoder:
    """Makes events of pieces of output: text in whole characters, or base64 where it is not UTF-8."""

    def __init__(self) -> None:
        self._rest: dict[str, tuple[int, bytes]] = {}  # of each stream: the first bytes of a character
        self._next_offset = 0

    def events(self, piece: m.LogPiece) -> list[bytes]:
        """The events of one piece."""
        self._next_offset = piece.end
        offset, before = self._rest.pop(piece.stream, (piece.offset, b""))
        data = before + piece.data
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                rest = data[error.start :]
                self._rest[piece.stream] = (max(piece.offset, piece.end - len(rest)), rest)
                data = data[: error.start]
        return [self._event(piece.stream, offset, data)] if data else []

    def rest(self) -> list[bytes]:
        """The events of characters that were never completed."""
        return [self._event(stream, offset, data) for stream, (offset, data) in self._rest.items()]

    def _event(self, stream: str, offset: int, data: bytes) -> bytes:
        encoding: Encoding = encoding_of(data)
        fields = {"stream": stream, "offset": offset, "data": encoded(data, encoding), "encoding": encoding}
        return sse("output", self._next_offset, json.dumps(fields, ensure_ascii=False))
