"""The clock, replaced in tests, so that they need not wait."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The system's clock, or one of a test."""

    def monotonic(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> datetime:
        """The time of day, for people."""


class SystemClock:
    """The system's clock."""

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)
