"""Every open connection of the HTTP server: what each is doing, how long it may, and which one makes room for another.

    accepted -> HEAD -> (TURN ->) BODY -> SERVING -> IDLE -> HEAD ...      a WebSocket stays in SERVING

A phase that lasts too long ends the connection. When all places are taken, a new connection takes the place of the one
that is missed least: waiting without a known caller, then idle, then served without a known caller; else it is refused.
Strangers who do not take their answers have few places.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from debug_server.service import audit
from debug_server.surfaces.http.strangers import Strangers

CONNECTION = "debug_server.connection"  # its key in an ASGI scope's state

_LOG = logging.getLogger(__name__)
_COMPLAIN_SECONDS = 5.0  # between two lines of the log, whatever happens
_CLOSE_SECONDS = 10.0  # for a client to take what is left of its answer
_STRANGER_SECONDS = 1.0  # served so long without a known caller, a connection may have to make room
_STRANGERS = 64  # of those
_LEAST_RATE = 1024  # bytes of a body a second


class Phase(Enum):
    """What a connection is doing."""

    HEAD = "head"  # a request's head is awaited or incomplete
    TURN = "turn"  # a stranger's head is complete, and others are served first
    BODY = "body"  # the head is complete, the body is not
    SERVING = "serving"  # the request is complete, the answer is not; or a WebSocket
    IDLE = "idle"  # answered, and the next request has not begun


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections, and how many seconds for each phase."""

    most: int
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0

    @property
    def sweep_seconds(self) -> float:
        """How often to look for connections that are overdue."""
        return min(1.0, min(self.head_seconds, self.body_seconds, self.idle_seconds) / 4)


class Connection:
    """One of them; its protocol reports the phases."""

    __slots__ = (
        *("_all", "answered", "body_bytes", "closing_at", "drop", "end", "heard_at", "record", "paused", "phase"),
        "since",
    )

    def __init__(self, connections: Connections, now: float) -> None:
        self._all = connections
        self.phase = Phase.HEAD
        self.since = self.heard_at = now  # when the phase began, when bytes came last
        self.body_bytes = 0
        self.answered = False  # the answer is complete although the body is not
        self.closing_at: float | None = None  # since when it is being closed
        self.record: audit.Record | None = None  # of the latest request
        self.drop: Callable[[], object] = _nothing  # cuts the connection
        self.end: Callable[[], bool] = _nothing  # tells the client and closes; True while it is still open
        self.paused: Callable[[], bool] = _nothing  # whether we do not read on: then the client cannot be late

    @property
    def known(self) -> bool:
        """Whether the latest request came from a known caller."""
        return self.record is not None and self.record.caller is not None

    def heard(self, count: int) -> None:
        """Bytes came."""
        self.heard_at = self._all.clock()
        if self.phase is Phase.BODY:
            self.body_bytes += count

    def enter(self, phase: Phase, *, answered: bool = False) -> None:
        """Begin a phase; nothing changes if it has begun already."""
        if phase is not self.phase or answered is not self.answered:
            self.since = self.heard_at = self._all.clock()
            self.body_bytes, self.answered = 0, answered
            self._all.moved(self, phase)

    def leave(self) -> None:
        """It is closed; a second call does nothing."""
        self._all.remove(self)


class Connections:
    """All of them, within their limits; used in one event loop."""

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        strangers: Strangers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.strangers = strangers or Strangers()
        self.clock = clock
        # In the order in which each began to wait, or to be served: the first is the oldest.
        self._idle: dict[Connection, None] = {}
        self._busy: dict[Connection, None] = {}
        self._complaints: Counter[str] = Counter()
        self._complained_at = -_COMPLAIN_SECONDS

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def open(self) -> Connection:
        """A new connection, which must be sent its first request's head."""
        connection = Connection(self, self.clock())
        self._idle[connection] = None
        return connection

    def admit(self) -> Connection | None:
        """A new connection within the bound, perhaps in another's place; None when it must be refused."""
        if len(self) >= self.limits.most and not self.make_room():
            self.complain("refused")
            return None
        return self.open()

    def make_room(self) -> bool:
        """Cut the connection that is missed least; False when every one is needed."""
        late = self.clock() - _STRANGER_SECONDS
        victim = (
            next((item for item in self._idle if not item.known), None)
            or next(iter(self._idle), None)
            or next((item for item in self._busy if not item.known and item.since < late), None)
        )
        if victim is None:
            return False
        self.complain("replaced")
        victim.leave()
        victim.drop()
        return True

    def moved(self, connection: Connection, phase: Phase) -> None:
        """A connection begins a phase."""
        if connection in self._idle or connection in self._busy:
            self.remove(connection)
            waits = phase in (Phase.HEAD, Phase.TURN, Phase.IDLE) or connection.answered
            (self._idle if waits else self._busy)[connection] = None
        connection.phase = phase

    def remove(self, connection: Connection) -> None:
        """A connection is gone."""
        self._idle.pop(connection, None)
        self._busy.pop(connection, None)

    def sweep(self) -> None:
        """End what is overdue, and write down what had to be done since the last line of the log."""
        now = self.clock()
        self._cut_strangers(now - _STRANGER_SECONDS)
        audit.summarise()
        for connection in (*self._idle, *self._busy):
            if connection.closing_at is not None:
                if now - connection.closing_at > _CLOSE_SECONDS:
                    connection.leave()
                    connection.drop()
            elif self._overdue(connection, now):
                self.complain(f"slow_{connection.phase.value}")
                connection.closing_at = now
                if not connection.end():
                    connection.leave()
        if self._complaints and now - self._complained_at >= _COMPLAIN_SECONDS:
            fields = {"open": len(self), "most": self.limits.most, **self._complaints}
            _LOG.warning("connections_limited", extra=fields)
            self._complaints.clear()
            self._complained_at = now

    def _cut_strangers(self, late: float) -> None:
        """Of strangers who have been served since then or longer, cut the oldest beyond the bound."""
        held = [
            item
            for item in self._busy
            if item.phase is Phase.SERVING and not item.known and item.since < late and item.closing_at is None
        ]
        for connection in held[: max(0, len(held) - _STRANGERS)]:
            self.complain("strangers_cut")
            connection.leave()
            connection.drop()

    def complain(self, what: str) -> None:
        """Count something for the next line of the log."""
        self._complaints[what] += 1

    def _overdue(self, connection: Connection, now: float) -> bool:
        lasted = now - connection.since
        match connection.phase:
            case Phase.HEAD:
                return lasted > self.limits.head_seconds
            case Phase.IDLE:
                return lasted > self.limits.idle_seconds
            case Phase.BODY if connection.answered:
                return lasted > self.limits.body_seconds
            case Phase.BODY if connection.paused():
                connection.since = connection.heard_at = now
                connection.body_bytes = 0
            case Phase.BODY:
                allowed = self.limits.body_seconds
                return now - connection.heard_at > allowed or lasted > allowed + connection.body_bytes / _LEAST_RATE
        return False


def _nothing() -> bool:
    return False
