"""Start to exit of ``true`` with memory, pids and cpu limits in force, against ``subprocess.run``."""

from __future__ import annotations

import subprocess

from benchmarks.command_setup import LIMITS, open_command_setup
from benchmarks.figures import Fact, Figure, Result, Size, added, at_most, interleaved, milliseconds, timed
from debug_server.model import ExitRecord

_ROUNDS = {Size.FULL: 2000, Size.QUICK: 200, Size.SMALLEST: 2}
_WARM_UP = {Size.FULL: 100, Size.QUICK: 20, Size.SMALLEST: 1}


def measure(size: Size) -> list[Result]:
    """The time that a supervised start adds."""
    with open_command_setup() as setup:
        run = setup.argv("true", limits=LIMITS)
        ours, peer = interleaved(
            lambda: timed(run),
            lambda: timed(lambda: subprocess.run(["true"], check=True)),
            rounds=_ROUNDS[size],
            warm_up=_WARM_UP[size],
        )
        facts = ours.facts("ours") | peer.facts("subprocess") | _in_force(run().exit)
    extra = added(ours, peer)
    return [
        Figure(name="added_p50", value=milliseconds(extra.p50), unit="ms", bar=at_most(2.5), facts=facts),
        Figure(name="added_p99", value=milliseconds(extra.p99), unit="ms", bar=at_most(8)),
    ]


def _in_force(record: ExitRecord) -> dict[str, Fact]:
    by: dict[str, Fact] = {f"{name}_by": item["by"] or "nothing" for name, item in record.limits.items()}
    return {"mechanism": record.mechanism} | by
