"""How long to wait before the next start, and how many starts there may be; pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

JITTER = 0.2  # the share of a wait that chance may take away
_MOST_DOUBLINGS = 64  # beyond that a float says infinity, and the maximum stands in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles from ``initial`` to ``maximum``; chance shortens each wait, so that a crowd does not march in step."""

    initial: float  # seconds
    maximum: float

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after so many failures in a row (1 or more); ``chance`` is in [0, 1)."""
        whole = min(self.maximum, self.initial * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
        return whole * (1.0 - JITTER * chance)


class RestartBudget:
    """So many restarts within any window; stable uptime gives all of them back."""

    def __init__(self, *, limit: int, window: float) -> None:
        self._limit = limit
        self._window = window
        self._spent: deque[float] = deque()

    def spend(self, now: float) -> bool:
        """Count one restart; False, and nothing is counted, when there is none left."""
        if self.left(now) == 0:
            return False
        self._spent.append(now)
        return True

    def left(self, now: float) -> int:
        """How many restarts there may still be."""
        while self._spent and self._spent[0] <= now - self._window:
            self._spent.popleft()
        return self._limit - len(self._spent)

    def refill(self) -> None:
        """Forget every restart."""
        self._spent.clear()
