"""The time since a timestamp, even if the wall clock is set while the process runs.

Timestamps in rows are from the wall clock. The elapsed time is computed with two clocks: the wall clock, and a
monotonic clock that started at the wall clock's time when this process started.

- For a timestamp from before the wall clock was set, the monotonic clock is right.
- For a later timestamp, the wall clock is right.

The wrong result is too large or negative, so the smaller non-negative result is used. It is never too large; it is too
small by at most the amount by which the wall clock was set back. If both results are negative, the timestamp is from
before this process, when the wall clock was ahead: the time is then counted from when it was first seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_MAX_CACHED_TIMES = 10_000
_ZERO = timedelta(0)


class ElapsedTime:
    """Computes the time since a timestamp."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),  # suspended time counts
    ) -> None:
        self._wall = wall
        self._ticks = ticks
        self._boot_time = wall() - timedelta(seconds=ticks())
        self._seen: dict[datetime, float] = {}

    def since(self, stamp: datetime) -> timedelta:
        """The time since ``stamp``."""
        found = [delta for delta in (self._wall() - stamp, self._steady() - stamp) if delta >= _ZERO]
        return min(found) if found else self._since_first_seen(stamp)

    def _steady(self) -> datetime:
        return self._boot_time + timedelta(seconds=self._ticks())

    def _since_first_seen(self, stamp: datetime) -> timedelta:
        if len(self._seen) >= _MAX_CACHED_TIMES:
            self._seen.clear()
        now = self._ticks()
        return timedelta(seconds=now - self._seen.setdefault(stamp, now))
