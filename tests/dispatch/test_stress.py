"""Many events at once, over a crash; the long form is scripts/soak_dispatch.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dispatch.stress import emit_and_kill

pytestmark = pytest.mark.timeout(300)  # dozens of processes, on a machine that may be busy


@pytest.mark.usefixtures("nothing_left")
def test_none_lost_none_twice_in_order_over_a_crash(tmp_path: Path) -> None:
    """150 events across 8 repositories, kill -9 in the middle: each runs once, its task's order kept, one end each.

    A push for four runners that the kill meets is queued for all of them or for none.
    """
    found = emit_and_kill(tmp_path, events=150, repositories=8, kills=1, seed=5, pause=0.02)
    assert found["events"] == 150 + 4 * found["pushes_amid_kills"] and found["pushes_amid_kills"] >= 5
    assert 2 <= found["most_at_once"] <= 8
