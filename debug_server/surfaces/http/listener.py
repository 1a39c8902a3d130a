"""Accepts connections for the HTTP server, within their limit.

The event loop's own accept loop takes the whole backlog in one iteration. When the process has no free descriptors, it
logs a traceback for each attempt: 6 MB of log per second.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus

from debug_server.surfaces.http.connections import Connection, Connections
from debug_server.surfaces.http.protocol import plain_refusal

_LOG = logging.getLogger(__name__)
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.2  # when nothing more can be opened
_ACCEPTS_PER_ITERATION = 32
_REFUSAL = plain_refusal(
    HTTPStatus.SERVICE_UNAVAILABLE, "too_many_connections", "all connections are in use: retry later", retryable=True
)

Factory = Callable[[Connection], asyncio.Protocol]


class Listener:
    """One listening socket; has the methods of an ``asyncio.Server`` that uvicorn calls."""

    def __init__(
        self,
        listening: socket.socket,
        factory: Factory,
        connections: Connections,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.sockets = (listening,)
        self._socket = listening
        self._factory = factory
        self._connections = connections
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        # Much smaller than the limit: a new connection must not become the oldest before its request is read.
        self._at_a_turn = max(1, min(_ACCEPTS_PER_ITERATION, connections.limits.max_connections // 16))
        self._arriving: set[asyncio.Task[None]] = set()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._socket.setblocking(False)
        self._listen()
        self._sweep()

    def close(self) -> None:
        """Accept no more; established connections stay."""
        self._closed = True
        self._loop.remove_reader(self._socket)
        for timer in self._timers.values():
            timer.cancel()
        for task in self._arriving:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is being established."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._readable)

    def _sweep(self) -> None:
        self._connections.sweep()
        self._later(self._connections.limits.sweep_seconds, self._sweep)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers[call] = self._loop.call_later(seconds, call)

    def _readable(self) -> None:
        for _ in range(self._at_a_turn):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause()
                return
            self._handle(accepted)

    def _pause(self) -> None:
        """The process or the machine has no free descriptors: close a connection, and accept again later."""
        self._connections.count("not_accepted")
        self._connections.make_room()
        self._loop.remove_reader(self._socket)
        self._later(_PAUSE_SECONDS, self._listen)

    def _handle(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        connection = self._connections.admit()
        if connection is None:
            self._refuse(accepted)
            return
        task = self._loop.create_task(self._establish(accepted, connection))
        connection.drop = task.cancel
        self._arriving.add(task)
        task.add_done_callback(lambda done: self._on_established(done, accepted, connection))

    def _on_established(self, task: asyncio.Task[None], accepted: socket.socket, connection: Connection) -> None:
        self._arriving.discard(task)
        if task.cancelled() or task.exception() is not None:  # it was replaced, or the TLS handshake failed
            connection.mark_closed()
            accepted.close()

    async def _establish(self, accepted: socket.socket, connection: Connection) -> None:
        timeout = self._connections.limits.head_seconds if self._tls else None
        await self._loop.connect_accepted_socket(
            lambda: self._factory(connection), accepted, ssl=self._tls, ssl_handshake_timeout=timeout
        )

    def _refuse(self, accepted: socket.socket) -> None:
        with accepted:
            if self._tls is None:
                try:
                    accepted.send(_REFUSAL)
                    accepted.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it is gone already
