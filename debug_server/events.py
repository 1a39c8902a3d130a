"""Wake-ups over the durable event log: a follower waits here and reads from the store at its cursor.

A wake-up carries no data and may be lost; the store is the source of truth. Events of this process wake followers at
once, those of other processes within POLL_SECONDS.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from debug_server.model import Event, Notice

POLL_SECONDS = 0.25


class EventRows(Protocol):
    """The part of the store's events that the feed needs."""

    def read(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events numbered above ``after``."""

    def add_listener(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call ``listener`` after each commit with an event; returns its removal."""


class EventFeed:
    """Waiting for events of one store; safe to share between threads."""

    def __init__(self, events: EventRows) -> None:
        self._rows = events
        self._changed = threading.Condition()
        self._wakes = 0
        self._closed = False
        self._remove = events.add_listener(lambda _: self.wake())

    def wake(self) -> None:
        """Wake every waiter."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> list[Event]:
        """The events numbered above ``after`` as soon as there are some; empty after ``timeout`` or ``close``."""
        deadline = time.monotonic() + timeout
        while True:
            seen = self._wakes  # before reading, so that an event in between is not missed
            events = self._rows.read(after)
            left = deadline - time.monotonic()
            if events or left <= 0 or self._closed:
                return events
            self._sleep(seen, min(left, POLL_SECONDS))

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
