"""Short commands with 8 in flight, against ``subprocess.run`` in 8 threads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.command_setup import LIMITS, open_command_setup
from benchmarks.figures import Bar, Figure, Result, Size, at_least, interleaved, timed
from debug_server.model import Limits

_IN_FLIGHT = 8
_BLOCKS = {Size.FULL: 8, Size.QUICK: 4, Size.SMALLEST: 1}
_PER_BLOCK = {Size.FULL: 125, Size.QUICK: 50, Size.SMALLEST: 2}


def measure(size: Size) -> list[Result]:
    """The rate with the default settings; then with limits, and with as many waiting keepers as commands."""
    return [
        _rate("rate", size, bar=at_least(0.3)),
        _rate("rate_with_limits", size, limits=LIMITS),
        _rate("rate_with_8_spare_keepers", size, spare_keepers=_IN_FLIGHT),
    ]


def _rate(
    name: str, size: Size, *, limits: Limits | None = None, spare_keepers: int | None = None, bar: Bar | None = None
) -> Result:
    count = _PER_BLOCK[size]
    with open_command_setup(spare_keepers=spare_keepers) as setup, ThreadPoolExecutor(_IN_FLIGHT) as threads:
        run = setup.argv("true", limits=limits)
        ours, peer = interleaved(
            lambda: timed(lambda: _all(threads, run, count)),
            lambda: timed(lambda: _all(threads, lambda: subprocess.run(["true"], check=True), count)),
            rounds=_BLOCKS[size],
        )
    total = count * _BLOCKS[size]
    rates = {"ours_per_s": total / sum(ours.values), "subprocess_per_s": total / sum(peer.values)}
    facts = {key: round(value, 1) for key, value in rates.items()} | {"commands": total, "in_flight": _IN_FLIGHT}
    return Figure(name=name, value=round(sum(peer.values) / sum(ours.values), 4), unit="of rate", bar=bar, facts=facts)


def _all(threads: ThreadPoolExecutor, run: Callable[[], object], count: int) -> None:
    for future in [threads.submit(run) for _ in range(count)]:
        future.result()
