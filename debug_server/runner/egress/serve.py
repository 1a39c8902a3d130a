"""The process of the proxy: its sockets, its connections, its end."""

from __future__ import annotations

import resource
import socket

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.connection import Connection, Proxying
from debug_server.runner.egress.denials import Denials, Report
from debug_server.runner.egress.dialer import Dialer, Outside
from debug_server.runner.egress.dns import Dns
from debug_server.runner.egress.loop import Loop, sleep
from debug_server.runner.egress.policy import Policy
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

_SPARE_FILES = 64
_NO_FILE_SECONDS = 0.5
_REPORTED_FAILURES = 10


def serve(
    tcp: socket.socket,
    dns: list[socket.socket],
    policy: Policy,
    report: Report,
    control: int,
    *,
    outside: Outside | None = None,
    bounds: Bounds | None = None,
) -> None:
    """Serve until ``control``, the reading end of a pipe, says that its other end is closed.

    ``tcp`` and ``dns`` listen in the namespace of the command. ``report`` gets events; it must not block. A lookup
    that hangs may leave a thread behind, so end the process by ``os._exit``.
    """
    if not policy.needs_proxy:
        raise ValueError(f"a policy of the mode {policy.mode.value!r} has no proxy")
    bounds = bounds or Bounds()
    _allow_open_files(bounds)
    loop = Loop(_Failures(report).add)
    denials = Denials(loop, report, bounds)
    dialer = Dialer(loop, policy, outside or Outside(), bounds)
    names = Dns(loop, policy, dialer, denials, bounds)
    for each in dns:
        names.serve(each)
    loop.start(_Acceptor(Proxying(loop, bounds, dialer, denials), tcp).run())
    try:
        loop.run(control)
    finally:
        dialer.close()
        loop.close()
    denials.flush()


class _Failures:
    """Reports the first defects that a connection met; a hostile client may know how to meet one again and again."""

    def __init__(self, report: Report) -> None:
        self._report, self._left = report, _REPORTED_FAILURES

    def add(self, error: Exception) -> None:
        if self._left:
            self._left -= 1
            self._report({"event": "egress_failed", "error": f"{type(error).__name__}: {error}"})


class _Acceptor:
    """Accepts connections. When there are too many, the one that has kept its request back for longest makes room."""

    def __init__(self, shared: Proxying, listener: socket.socket) -> None:
        self._shared, self._listener = shared, listener
        self._connections: dict[Connection, None] = {}  # in the order in which they came

    def run(self) -> Steps[None]:
        loop = self._shared.loop
        loop.watch(self._listener)
        accepted = 0
        while True:
            try:
                client, peer = self._listener.accept()
            except BlockingIOError:
                yield from loop.readable(self._listener, float("inf"))
            except OSError:  # the connection is gone already, or the process has too many open files
                self._make_room()
                yield from sleep(_NO_FILE_SECONDS)
            else:
                loop.start(self._serve(client, f"{peer[0]}:{peer[1]}"))
                accepted += 1
                if accepted % 64 == 0:
                    yield None

    def _serve(self, client: socket.socket, peer: str) -> Steps[None]:
        if len(self._connections) >= self._shared.bounds.connections and not self._make_room():
            client.close()
            return
        connection = Connection(self._shared, Stream(self._shared.loop, client), peer)
        self._connections[connection] = None
        try:
            yield from connection.run()
        finally:
            self._connections.pop(connection, None)

    def _make_room(self) -> bool:
        for connection in self._connections:
            if connection.waits:
                del self._connections[connection]
                connection.close()
                return True
        return False


def _allow_open_files(bounds: Bounds) -> None:
    wanted = 2 * bounds.connections + 2 * bounds.pipes + bounds.dns_connections + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
