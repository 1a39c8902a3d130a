"""uvicorn with our own listener and signal handling; it wakes once a second instead of ten times."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from socket import AF_UNIX, socket
from typing import Any

import uvicorn

from debug_server.service.wakeups import wait_for
from debug_server.surfaces.http.connections import Connections
from debug_server.surfaces.http.listener import Listener
from debug_server.surfaces.http.protocol import GuardedHttp, GuardedSocket

MAX_FRAME = 1 << 20  # from a WebSocket's client, which sends almost nothing


class HttpServer(uvicorn.Server):
    """Serves one application on listening sockets."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        self._asked_to_exit = asyncio.Event()
        self._connections = connections
        super().__init__(config)

    @property
    def should_exit(self) -> bool:
        """Whether the server is to exit."""
        return self._asked_to_exit.is_set()

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        (self._asked_to_exit.set if value else self._asked_to_exit.clear)()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers: ours drain first."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Accept connections on the sockets, within the limit."""
        await self.lifespan.startup()
        protocol: Any = self.config.http_protocol_class  # as ``protocols`` chose it
        make = partial(protocol, self.config, self.server_state, self.lifespan.state)
        listeners = [
            Listener(item, lambda connection: make(connection=connection), self._connections, tls=self._tls(item))
            for item in sockets or ()
        ]
        self.servers = listeners  # type: ignore[assignment]
        for listener in listeners:
            listener.start()
        self.started = True

    def _tls(self, listener: socket) -> ssl.SSLContext | None:
        """The TLS context; None for a unix socket, whose data stays on the machine."""
        return None if listener.family == AF_UNIX else self.config.ssl

    async def main_loop(self) -> None:
        """Run until the server is to exit."""
        while not await self.on_tick(0):  # 0: also updates the Date header
            await wait_for(self._asked_to_exit, 1.0)


def protocols(connections: Connections) -> dict[str, Any]:
    """The arguments of ``uvicorn.Config`` that choose our protocols."""
    return {"http": partial(GuardedHttp, connections=connections), "ws": GuardedSocket}
