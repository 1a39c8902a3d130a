"""The short form of ``scripts/soak_worker.py``."""

from __future__ import annotations

import asyncio

import pytest

from tests.running import Bench
from tests.workers.soak import campaign

pytestmark = pytest.mark.timeout(300)  # dozens of processes, on a machine that may be busy
KILLS = 25


def test_kills_at_random_moments_leak_nothing_and_are_counted_exactly(bench: Bench) -> None:
    """Each kill is one exit and one restart, in the status and in the metric; every request has an end; what is left
    of the processes, groups and folders is looked for by the fixture."""
    tally = asyncio.run(campaign(bench, KILLS, seed=7))
    assert tally.wrong == []
    assert (tally.kills, tally.restarts, tally.counted) == (KILLS, KILLS, KILLS)
    assert tally.changes["exit"] == KILLS + 1
    assert tally.answered > 0
    assert not bench.store.queue.claimed()
