"""Compares what the same work costs with little and with much data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.figures import Bar, Fact, Figure, Result, Samples, interleaved, milliseconds
from benchmarks.processes import cpu_seconds

Work = Callable[[], object]


def compared(
    name: str, small: Samples, large: Samples, facts: Mapping[str, Fact] | None = None, *, bar: Bar | None = None
) -> Figure:
    """How many times the time with little data is needed with much."""
    times: dict[str, Fact] = {"large_ms": milliseconds(large.p50), "small_ms": milliseconds(small.p50)}
    value = large.p50 / max(small.p50, 1e-9)
    return Figure(name=name, value=value, unit="x", bar=bar, facts=times | dict(facts or {}))


def verbs_compared(
    kind: str,
    small: tuple[int, Mapping[str, Work]],
    large: tuple[int, Mapping[str, Work]],
    *,
    requests: int,
    rounds: int,
) -> list[Result]:
    """CPU time of two servers, or of one, for each request; each side is a process and what it is asked, by name."""
    results: list[Result] = []
    for name in small[1]:
        sides = (partial(_cpu_of, pid, asked[name], requests) for pid, asked in (small, large))
        few, many = interleaved(*sides, rounds=rounds)
        results.append(compared(f"{kind}, {name}", few, many))
    return results


def _cpu_of(pid: int, ask: Work, requests: int) -> float:
    """CPU time of a process for one request."""
    before = cpu_seconds(pid)
    for _ in range(requests):
        ask()
    return (cpu_seconds(pid) - before) / requests
