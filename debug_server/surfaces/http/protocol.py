"""The HTTP protocol of uvicorn, with bounds on how long a request may take to arrive, how large its head may be and how
many may wait behind it; requests of unidentified callers begin in turns.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from debug_server.service.own_user import SOCKET, is_open
from debug_server.surfaces.http.connections import CONNECTION, Connection, Connections, Phase
from debug_server.surfaces.http.unidentified import caller_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from uvicorn.config import Config
    from uvicorn.server import ServerState

MAX_HEAD = 64 << 10
MAX_WAITING = 8  # requests behind the one that is being served; pieces of 256 KiB could bring thousands
_SHARED_FRAMES = 32  # cached frames: more than one follower gets before the next follower is woken


class _TooManyRequests(Exception):
    """No more requests of this connection are taken."""


class GuardedHttp(HttpToolsProtocol):
    """One connection; reports what it is doing to its ``Connection``."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._connection = connection or connections.open()
        self.app_state = {**app_state, CONNECTION: self._connection}
        self._in_head = True
        self._in_body = False
        self._upgraded = False
        self._head_bytes = 0
        self._full = False  # True: bytes that still arrive are dropped
        self._unidentified = connections.unidentified
        self._user: Hashable = None  # once it is known
        self._begin: Callable[[], bool] | None = None  # a request or upgrade that waits for its turn
        self._started: RequestResponseCycle | None = None  # the request that is being served, or was last

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is established, with TLS where that is used."""
        super().connection_made(transport)
        self.app_state[SOCKET] = transport.get_extra_info("socket")
        self._connection.drop, self._connection.end = transport.abort, self._end
        self._connection.paused = lambda: self.flow.read_paused

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._leave_turn()
        self._connection.mark_closed()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of several."""
        if self._full:
            self.flow.pause_reading()
            return
        self._connection.received(len(data))
        self._head_bytes += len(data)
        super().data_received(data)
        if self._upgraded:
            return
        if self._in_head and self._head_bytes > MAX_HEAD:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head has more than {MAX_HEAD} bytes")
        self._report()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if len(self.pipeline) >= MAX_WAITING:
            self._full = True
            raise _TooManyRequests
        super().on_message_begin()
        self._in_head, self._in_body = True, False

    def on_headers_complete(self) -> None:
        """The head is complete."""
        super().on_headers_complete()
        self._in_head, self._in_body, self._head_bytes = False, True, 0

    def on_message_complete(self) -> None:
        """The body is complete."""
        super().on_message_complete()
        self._in_body, self._head_bytes = False, 0

    def on_response_complete(self) -> None:
        """The answer is complete; another request may have been waiting for that."""
        super().on_response_complete()
        self._report()

    def send_400_response(self, msg: str) -> None:
        """The parser has stopped: over a wrong request, or over too many, of which those that wait are answered."""
        if self._full:
            self.cycle.keep_alive = False
            self.flow.pause_reading()
        else:
            super().send_400_response(msg)

    def handle_websocket_upgrade(self) -> None:
        """From here on another protocol has the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # the answer to an earlier request would be written into the WebSocket
        elif self._is_unidentified(self.headers):
            self.flow.pause_reading()
            self._wait(self._upgrade)
        else:
            self._upgrade()

    def shutdown(self) -> None:
        """The server is leaving: what has begun is answered, nothing else."""
        self.pipeline.clear()
        if self._begin is not None:
            self._leave_turn()
            self.transport.close()
            return
        super().shutdown()
        if self._started is not None:
            self._started.keep_alive = False

    def _upgrade(self) -> None:
        self._upgraded = True
        self._connection.enter(Phase.SERVING)
        super().handle_websocket_upgrade()
        self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._started = cycle
        start = partial(super()._start_asgi_task, cycle, app)
        if self._is_unidentified(cycle.scope["headers"]):
            self._wait(start)
        else:
            start()

    def _is_unidentified(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if self._connection.is_identified:
            return False
        if self._user is None:
            self._user = caller_of(self.client, self.server)
        return self._unidentified.include(self._user, headers)

    def _wait(self, begin: Callable[[], object]) -> None:
        """Begin it in this user's turn."""

        def begun() -> bool:
            self._begin = None
            if self._connection.phase is Phase.TURN and not is_open(self.app_state[SOCKET]):  # seen late
                self.transport.abort()
                return False
            begin()
            if not self._upgraded:
                self._report()
            return True

        self._begin = begun
        self._unidentified.turns.wait(self._user, begun)

    def _leave_turn(self) -> None:
        if self._begin is not None:
            self._unidentified.turns.leave(self._user, self._begin)
            self._begin = None

    def _report(self) -> None:
        connection = self._connection
        if self._begin is not None:
            connection.enter(Phase.TURN)
        elif self.cycle is not None and not self.cycle.response_complete:
            connection.enter(Phase.BODY if self._in_body else Phase.SERVING)
        elif self._in_head:
            connection.enter(Phase.HEAD)
        elif self._in_body:
            connection.enter(Phase.BODY, answered=True)
        else:
            connection.enter(Phase.IDLE)

    def _end(self) -> bool:
        """Close a connection whose phase has lasted too long; returns True."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and self.cycle.response_started:
            self.transport.abort()  # an answer that is cut off must not look like a complete one
        elif answering or (self._in_head and self._head_bytes):
            part = "head" if self._in_head else "body"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {part} of the request did not arrive in time")
        else:
            self.transport.close()
        return True

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(plain_refusal(status, "invalid_input", message, retryable=False))
            self.transport.close()


class GuardedSocket(WebSocketsSansIOProtocol):
    """The connection after its upgrade to a WebSocket."""

    async def send(self, message: Any) -> None:
        """Send one message; a text that is sent to many clients is framed only once."""
        text = message.get("text") if message["type"] == "websocket.send" else None
        if text is None:
            await super().send(message)
            return
        await self.writable.wait()
        if self.close_sent or self.conn.state is not State.OPEN:
            await super().send(message)  # raises the right exception
        elif self.transport.is_closing():  # uvicorn does not know yet; asyncio would log each write
            raise ClientDisconnected
        else:
            self.transport.write(_frame(text))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self.app_state[CONNECTION].mark_closed()
        super().connection_lost(exc)


@lru_cache(_SHARED_FRAMES)
def _frame(text: str) -> bytes:
    """A text message as the server sends it: not masked, and never compressed."""
    return Frame(Opcode.TEXT, text.encode()).serialize(mask=False)


def plain_refusal(status: HTTPStatus, code: str, message: str, *, retryable: bool) -> bytes:
    """A complete error response that closes the connection, for use before a request was read."""
    body = json.dumps({"error": {"code": code, "message": message, "retryable": retryable}}).encode()
    head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
    retry = b"retry-after: 1\r\n" if retryable else b""
    return STATUS_LINE[status] + head + retry + b"\r\n" + body
