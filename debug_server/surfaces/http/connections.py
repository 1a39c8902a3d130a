"""The open connections of the HTTP server: the phase of each, its time limit, and which one is closed for a new one.

    accepted -> HEAD -> (TURN ->) BODY -> SERVING -> IDLE -> HEAD ...      a WebSocket stays in SERVING

A connection is closed when a phase lasts too long. At the limit, a new connection replaces an existing one: a waiting
one of an unidentified caller, else a waiting one, else a served one of an unidentified caller; else it is refused. Only
a few unidentified callers that do not read their answers stay connected.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from debug_server.service import audit
from debug_server.surfaces.http.unidentified import UnidentifiedCallers

CONNECTION = "debug_server.connection"  # its key in an ASGI scope's state

_LOG = logging.getLogger(__name__)
_LOG_SECONDS = 5.0  # minimum time between two log lines
_CLOSE_SECONDS = 10.0  # for a client to take what is left of its answer
_UNIDENTIFIED_SECONDS = 1.0  # a connection served for longer without an identified caller may be replaced
_MAX_UNIDENTIFIED = 64  # maximum number of such connections; beyond it the oldest are closed
_MIN_BYTES_PER_SECOND = 1024  # bytes of a body a second


class Phase(Enum):
    """What a connection is doing."""

    HEAD = "head"  # a request's head is awaited or incomplete
    TURN = "turn"  # an unidentified caller's head is complete, and others are served first
    BODY = "body"  # the head is complete, the body is not
    SERVING = "serving"  # the request is complete, the answer is not; or a WebSocket
    IDLE = "idle"  # answered, and the next request has not begun


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections, and how many seconds for each phase."""

    max_connections: int
    head_seconds: float = 20.0
    body_seconds: float = 30.0
    idle_seconds: float = 75.0

    @property
    def sweep_seconds(self) -> float:
        """How often to look for connections that are overdue."""
        return min(1.0, min(self.head_seconds, self.body_seconds, self.idle_seconds) / 4)


class Connection:
    """One connection; its protocol reports the phases."""

    __slots__ = (
        "_connections",
        "answered",
        "body_bytes",
        "closing_at",
        "drop",
        "end",
        "paused",
        "phase",
        "received_at",
        "record",
        "since",
    )

    def __init__(self, connections: Connections, now: float) -> None:
        self._connections = connections
        self.phase = Phase.HEAD
        self.since = self.received_at = now  # when the phase began, when bytes came last
        self.body_bytes = 0
        self.answered = False  # the answer is complete although the body is not
        self.closing_at: float | None = None  # since when it is being closed
        self.record: audit.Record | None = None  # of the latest request
        self.drop: Callable[[], object] = _nothing  # cuts the connection
        self.end: Callable[[], bool] = _nothing  # closes, with an error if possible; False: it cannot
        self.paused: Callable[[], bool] = _nothing  # whether reading is paused, so that the client cannot send

    @property
    def is_identified(self) -> bool:
        """Whether the latest request came from a known caller."""
        return self.record is not None and self.record.caller is not None

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received."""
        self.received_at = self._connections.clock()
        if self.phase is Phase.BODY:
            self.body_bytes += count

    def enter(self, phase: Phase, *, answered: bool = False) -> None:
        """Begin a phase; nothing changes if it has begun already."""
        if phase is not self.phase or answered is not self.answered:
            self.since = self.received_at = self._connections.clock()
            self.body_bytes, self.answered = 0, answered
            self._connections.phase_changed(self, phase)

    def mark_closed(self) -> None:
        """Record that the connection is closed; a second call does nothing."""
        self._connections.remove(self)


class Connections:
    """All open connections, within their limits; used in one event loop."""

    def __init__(
        self,
        limits: ConnectionLimits,
        *,
        unidentified: UnidentifiedCallers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.unidentified = unidentified or UnidentifiedCallers()
        self.clock = clock
        # Ordered by the start of their phase: the first is the oldest.
        self._idle: dict[Connection, None] = {}
        self._busy: dict[Connection, None] = {}
        self._counts: Counter[str] = Counter()
        self._logged_at = -_LOG_SECONDS

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def open(self) -> Connection:
        """Add a connection that waits for the head of its first request."""
        connection = Connection(self, self.clock())
        self._idle[connection] = None
        return connection

    def admit(self) -> Connection | None:
        """Add a connection within the limit, if necessary by replacing another one; None if it must be refused."""
        if len(self) >= self.limits.max_connections and not self.make_room():
            self.count("refused")
            return None
        return self.open()

    def make_room(self) -> bool:
        """Close the connection that is needed least; False if none can be closed."""
        cutoff = self.clock() - _UNIDENTIFIED_SECONDS
        victim = (
            next((item for item in self._idle if not item.is_identified), None)
            or next(iter(self._idle), None)
            or next((item for item in self._busy if not item.is_identified and item.since < cutoff), None)
        )
        if victim is None:
            return False
        self.count("replaced")
        victim.mark_closed()
        victim.drop()
        return True

    def phase_changed(self, connection: Connection, phase: Phase) -> None:
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
        """Close overdue connections, and log the events counted since the last log line."""
        now = self.clock()
        self._close_unidentified(now - _UNIDENTIFIED_SECONDS)
        audit.summarise()
        for connection in (*self._idle, *self._busy):
            if connection.closing_at is not None:
                if now - connection.closing_at > _CLOSE_SECONDS:
                    connection.mark_closed()
                    connection.drop()
            elif connection.phase is Phase.BODY and not connection.answered and connection.paused():
                connection.since = connection.received_at = now
                connection.body_bytes = 0
            elif self._overdue(connection, now):
                self.count(f"slow_{connection.phase.value}")
                connection.closing_at = now
                if not connection.end():
                    connection.mark_closed()
        if self._counts and now - self._logged_at >= _LOG_SECONDS:
            fields = {"open": len(self), "limit": self.limits.max_connections, **self._counts}
            _LOG.warning("connections_limited", extra=fields)
            self._counts.clear()
            self._logged_at = now

    def _close_unidentified(self, cutoff: float) -> None:
        """Of unidentified callers served since ``cutoff`` or longer, close the oldest beyond the limit."""
        held = [
            item
            for item in self._busy
            if item.phase is Phase.SERVING
            and not item.is_identified
            and item.since < cutoff
            and item.closing_at is None
        ]
        for connection in held[: max(0, len(held) - _MAX_UNIDENTIFIED)]:
            self.count("unidentified_closed")
            connection.mark_closed()
            connection.drop()

    def count(self, what: str) -> None:
        """Count an event for the next log line."""
        self._counts[what] += 1

    def _overdue(self, connection: Connection, now: float) -> bool:
        lasted = now - connection.since
        match connection.phase:
            case Phase.HEAD:
                return lasted > self.limits.head_seconds
            case Phase.IDLE:
                return lasted > self.limits.idle_seconds
            case Phase.BODY if connection.answered:
                return lasted > self.limits.body_seconds
            case Phase.BODY:
                allowed = self.limits.body_seconds
                return (
                    now - connection.received_at > allowed
                    or lasted > allowed + connection.body_bytes / _MIN_BYTES_PER_SECOND
                )
        return False


def _nothing() -> bool:
    return False
