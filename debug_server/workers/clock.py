"""What time it is, for rules that are tested without waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The machine's, or a test's."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def wall(self) -> datetime:
        """The time of day, for people."""


class SystemClock:
    """The machine's."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)
