"""Nothing of a command's tree outlives its end, however it tries."""

from __future__ import annotations

import pytest

from debug_server.model import ExitReason
from tests.runner.escapes import ARTISTS, escape, escape_all
from tests.running import Bench, carrying, eventually, new_mark, program


@pytest.mark.parametrize("end", ["cancel", "keeper_death"])
@pytest.mark.parametrize("artist", ARTISTS)
def test_no_process_survives_the_end_of_its_command(held: Bench, artist: str, end: str) -> None:
    """After a cancel or the death of its keeper, no process of the tree is left."""
    escape(held, artist, end)


def test_no_process_survives_a_timeout(held: Bench) -> None:
    """The same after a timeout, with every artist at large at the same time."""
    assert escape_all(held, ends=["timeout"], threads=len(ARTISTS)) == []


@pytest.mark.parametrize("artist", ["setsid", "double_fork", "pipe_holder", "hydra", "wiped"])
def test_what_a_command_leaves_behind_ends_with_it(held: Bench, artist: str) -> None:
    """A leader that exits with status 0 succeeds at once, and the daemons it started are ended and listed."""
    mark = new_mark(f"left-{artist}")
    result = held.run(program("escape.py", artist, mark, "--leave"))
    assert result.exit_reason is ExitReason.EXITED
    assert result.exit.wall_seconds < 30.0
    # Each of the hydra's processes lives half a millisecond: a listing may find none of them.
    assert artist == "hydra" or result.exit.evidence["leftovers"]
    eventually(lambda: not carrying(mark), what="the end of the leftovers")
