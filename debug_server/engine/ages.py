"""How long ago something was, on a machine whose clock may be set while it runs.

Rows are stamped by the wall clock. Each stamp has two ages: by the wall clock, and by a clock that began with the wall
clock's time when this process did and has ticked steadily since. A stamp from before a jump is right by the second
one, a stamp from after it by the first, and the wrong one of the two is either too large or negative: so the smaller
one that is not negative is the age, never too large, and too small by a step back at most. A stamp that lies in the
future by both was made by a clock that had run ahead before this process began: it ages from when it was first seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_REMEMBERED = 10_000
_ZERO = timedelta(0)


class Ages:
    """The ages of stamps."""

    def __init__(
        self,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),  # suspended time counts
    ) -> None:
        self._wall = wall
        self._ticks = ticks
        self._began = wall() - timedelta(seconds=ticks())
        self._seen: dict[datetime, float] = {}

    def of(self, stamp: datetime) -> timedelta:
        """How long ago the stamp was made."""
        ages = [age for age in (self._wall() - stamp, self._steady() - stamp) if age >= _ZERO]
        return min(ages) if ages else self._since_seen(stamp)

    def _steady(self) -> datetime:
        return self._began + timedelta(seconds=self._ticks())

    def _since_seen(self, stamp: datetime) -> timedelta:
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        now = self._ticks()
        return timedelta(seconds=now - self._seen.setdefault(stamp, now))
