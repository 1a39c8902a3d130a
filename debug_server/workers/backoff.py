"""The delay before the next start, and the budget of restarts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

JITTER = 0.2  # the largest random reduction of a delay
_MAX_DOUBLINGS = 64  # a float would become infinite; the maximum applies anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles from ``initial`` to ``maximum``.

    Each delay is reduced by a random part, so that workers do not restart at the same time.
    """

    initial: float  # seconds
    maximum: float

    def delay(self, failures: int, chance: float) -> float:
        """The delay after ``failures`` in a row (1 or more); ``chance`` is in [0, 1)."""
        whole = min(self.maximum, self.initial * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
        return whole * (1.0 - JITTER * chance)


class RestartBudget:
    """At most ``limit`` restarts within any ``window`` seconds; ``refill`` after stable uptime."""

    def __init__(self, *, limit: int, window: float) -> None:
        self._limit = limit
        self._window = window
        self._spent: deque[float] = deque()

    def spend(self, now: float) -> bool:
        """Count one restart; False, without counting, when none is left."""
        if self.left(now) == 0:
            return False
        self._spent.append(now)
        return True

    def left(self, now: float) -> int:
        """How many restarts are left."""
        while self._spent and self._spent[0] <= now - self._window:
            self._spent.popleft()
        return self._limit - len(self._spent)

    def refill(self) -> None:
        """Forget every restart."""
        self._spent.clear()
