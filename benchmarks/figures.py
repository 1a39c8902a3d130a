"""What a benchmark reports: samples, and figures with the bar that they must meet."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

Fact = float | str | bool


class Size(StrEnum):
    """How much is measured."""

    FULL = "full"  # what the bars are about
    QUICK = "quick"  # the same in a minute or two; too few samples for a verdict
    SMALLEST = "smallest"  # only to see that it runs


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of repetitions, all of them: an outlier is a finding."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Samples:
        """From any sequence that has at least one value."""
        return cls(tuple(values))

    def percentile(self, percent: float) -> float:
        """The smallest value that ``percent`` of all do not exceed."""
        rank = math.ceil(len(self.values) * percent / 100)
        return sorted(self.values)[max(rank, 1) - 1]

    @property
    def p50(self) -> float:
        """The median."""
        return self.percentile(50)

    @property
    def p99(self) -> float:
        """The value that one in a hundred exceeds."""
        return self.percentile(99)

    def facts(self, name: str) -> dict[str, Fact]:
        """For a figure's facts, in milliseconds."""
        found = {"p50": self.p50, "p99": self.p99, "max": max(self.values)}
        facts: dict[str, Fact] = {f"{name}_{key}_ms": milliseconds(value) for key, value in found.items()}
        return facts | {f"{name}_n": len(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a figure must meet."""

    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether ``value`` meets it."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    bar: Bar | None = None  # None: for information
    facts: Mapping[str, Fact] = field(default_factory=dict)  # what it was computed from

    @property
    def holds(self) -> bool | None:
        """Whether the bar is met; None where there is none."""
        return None if self.bar is None else self.bar.holds(self.value)


FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A figure that cannot be had here; named ``FAILED``, a subject that could not be measured."""

    name: str
    reason: str


Result = Figure | Skipped


def at_most(limit: float) -> Bar:
    """A bar for costs."""
    return Bar(limit=limit)


def at_least(limit: float) -> Bar:
    """A bar for speeds."""
    return Bar(limit=limit, at_least=True)


def timed(action: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def interleaved(*contenders: Callable[[], float], rounds: int, warm_up: int = 1) -> list[Samples]:
    """Call the contenders in turn (A B A B …), each returning its seconds; the warm-up is not counted."""
    for _ in range(warm_up):
        for contender in contenders:
            contender()
    taken: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for values, contender in zip(taken, contenders, strict=True):
            values.append(contender())
    return [Samples.of(values) for values in taken]


def added(ours: Samples, peer: Samples) -> Samples:
    """What ours takes beyond the peer's median: a slow moment of the peer is no credit to us."""
    return Samples.of([value - peer.p50 for value in ours.values])


def milliseconds(seconds: float) -> float:
    """For a figure's value."""
    return round(seconds * 1000, 4)
