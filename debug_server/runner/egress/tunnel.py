"""A tunnel that CONNECT opened: what goes through it is checked against the host that it was opened for."""

from __future__ import annotations

import time

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.denials import Denied
from debug_server.runner.egress.hello import HANDSHAKE, HelloError, read_server_name
from debug_server.runner.egress.loop import Loop, TimedOut
from debug_server.runner.egress.names import Host, HostError, parse_sni
from debug_server.runner.egress.relay import Activity, Mover
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

HTTP, HTTPS = 80, 443


class Tunnel:
    """Bytes between ``client`` and ``server``. At port 443 they must be TLS; elsewhere TLS is checked if it comes."""

    def __init__(
        self, loop: Loop, mover: Mover, bounds: Bounds, *, client: Stream, server: Stream, host: Host, port: int
    ) -> None:
        self._loop, self._mover, self._bounds = loop, mover, bounds
        self._client, self._server = client, server
        self._host, self._port = host, port
        self._activity = Activity(bounds.idle_seconds)
        self._down_ended = False
        self._failure: Exception | None = None
        self._up = loop.current()

    def run(self) -> Steps[None]:
        """Move bytes until both sides have ended; Denied when the client names another host."""
        self._loop.start(self._move_down())
        try:
            yield from self._check()
        except HelloError as error:
            why = f"{error}: only TLS may go to port 443" if self._port == HTTPS else str(error)
            raise Denied(self._host, self._port, why) from None
        yield from self._mover.move(self._client, self._server, self._activity)
        while not self._down_ended:
            try:
                yield self._activity.deadline()
            except TimedOut:
                if time.monotonic() >= self._activity.deadline():
                    raise
        if self._failure is not None:
            raise self._failure

    def _move_down(self) -> Steps[None]:
        try:
            yield from self._mover.move(self._server, self._client, self._activity)
        except (OSError, TimedOut) as error:
            self._failure = error
            self._client.close()
        finally:
            self._down_ended = True
            self._loop.wake(self._up)

    def _check(self) -> Steps[None]:
        if not (yield from self._have_first_byte()):
            return
        if self._client.buffer[0] != HANDSHAKE and self._port != HTTPS:
            return
        deadline = time.monotonic() + self._bounds.hello_seconds
        try:
            name = yield from read_server_name(self._client, self._bounds, deadline)
        except TimedOut:
            raise HelloError("the ClientHello did not come in time") from None
        self._activity.touch()
        self._check_name(name)

    def _have_first_byte(self) -> Steps[bool]:
        """False at the end of the stream. Elsewhere than at port 443 the server may speak first, for long."""
        must_hurry = self._port == HTTPS
        began = time.monotonic()
        while not self._client.buffer:
            deadline = began + self._bounds.hello_seconds if must_hurry else self._activity.deadline()
            try:
                if not (yield from self._client.fill(deadline)):
                    return False
            except TimedOut:
                if must_hurry or time.monotonic() >= self._activity.deadline():
                    raise
        return True

    def _check_name(self, name: str | None) -> None:
        if name is None:
            if isinstance(self._host, str):
                raise Denied(self._host, self._port, "the client names no host in TLS (SNI)")
            return
        try:
            same = parse_sni(name) == self._host
        except HostError:
            same = False
        if not same:
            raise Denied(self._host, self._port, f"the client names another host in TLS (SNI): {name[:255]!r}")
