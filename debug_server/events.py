"""Wake-ups over the durable event log: a follower waits here and reads from the store at its cursor.

A wake-up carries nothing and may be lost; the store's numbers are the truth. Events of this process wake at once,
those of another process within REPAIR_SECONDS.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from debug_server.model import Event, Notice

REPAIR_SECONDS = 0.25


class EventRows(Protocol):
    """What the feed needs of the store's events."""

    def append(
        self,
        kind: str,
        *,
        session_id: int | None = None,
        command_id: int | None = None,
        subject: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Append and return the number."""

    def read(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events numbered above ``after``."""

    def add_listener(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Have ``listener`` called after a commit that brought an event; returns its removal."""


class EventFeed:
    """Waiting for events of one store; safe to share between threads."""

    def __init__(self, events: EventRows) -> None:
        self._rows = events
        self._changed = threading.Condition()
        self._wakes = 0
        self._closed = False
        self._remove = events.add_listener(lambda _: self.wake())

    def append(
        self,
        kind: str,
        *,
        session_id: int | None = None,
        command_id: int | None = None,
        subject: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Append a durable event, wake the waiters and return its number."""
        return self._rows.append(kind, session_id=session_id, command_id=command_id, subject=subject, data=data)

    def wake(self) -> None:
        """Make every waiter look again."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> list[Event]:
        """The events numbered above ``after`` as soon as there are some; empty after ``timeout`` or ``close``."""
        deadline = time.monotonic() + timeout
        while True:
            seen = self._wakes  # before reading: an event that comes in between is not slept over
            events = self._rows.read(after)
            left = deadline - time.monotonic()
            if events or left <= 0 or self._closed:
                return events
            self._sleep(seen, min(left, REPAIR_SECONDS))

    def _sleep(self, seen: int, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._wakes != seen, seconds)

    def close(self) -> None:
        """Let every waiter return, and stop listening."""
        self._remove()
        self._closed = True
        self.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
