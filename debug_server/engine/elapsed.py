"""The time since a timestamp, on a machine whose clock may be set while the process runs.

Rows have timestamps of the wall clock. The time since a timestamp is computed twice: by the wall clock, and by a steady
clock that was set to the wall clock when this process started. For a timestamp from before a jump of the wall
clock the steady clock is right, for a later one the wall clock; the other result is too large or negative. So the
smaller one that is not negative is used: it is never too large, and too small by at most a step back. A timestamp
that is in the future by both clocks comes from before this process, when the clock was ahead: its time counts from when
it was first seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_REMEMBERED = 10_000
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
        self._boot = wall() - timedelta(seconds=ticks())
        self._seen: dict[datetime, float] = {}

    def since(self, stamp: datetime) -> timedelta:
        """The time since ``stamp``."""
        found = [delta for delta in (self._wall() - stamp, self._steady() - stamp) if delta >= _ZERO]
        return min(found) if found else self._since_first_seen(stamp)

    def _steady(self) -> datetime:
        return self._boot + timedelta(seconds=self._ticks())

    def _since_first_seen(self, stamp: datetime) -> timedelta:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        now = self._ticks()
        return timedelta(seconds=now - self._seen.setdefault(stamp, now))
