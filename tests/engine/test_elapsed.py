"""A clock that jumps neither ends sessions before their time nor keeps them for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.engine.elapsed import ElapsedTime
from debug_server.engine.housekeeping import IDLE, Housekeeper
from debug_server.model import SessionStatus
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.servers import unmount_below
from tests.worktrees.places import make_remote

HOUR, YEAR = timedelta(hours=1), timedelta(days=365)


class Clock:
    """Time as the test wants it: it passes, and it is set."""

    def __init__(self) -> None:
        self.wall = datetime.now(UTC)
        self.ticks = 1000.0

    def passes(self, time: timedelta) -> None:
        """For everybody."""
        self.wall += time
        self.ticks += time.total_seconds()

    def elapsed(self) -> ElapsedTime:
        """In a process that begins now."""
        return ElapsedTime(wall=lambda: self.wall, ticks=lambda: self.ticks)


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 2 * HOUR, timedelta(0)])
def test_stamps_of_either_side_of_a_jump_have_their_age(jump: timedelta) -> None:
    """Whichever way the clock was set, a stamp from before it and one from after it are as old as they are."""
    clock = Clock()
    elapsed, before = clock.elapsed(), clock.wall
    clock.passes(HOUR)
    clock.wall += jump
    after = clock.wall
    clock.passes(HOUR)
    assert elapsed.since(before) == 2 * HOUR
    assert elapsed.since(after) == HOUR


def test_a_small_step_back_makes_nothing_older() -> None:
    """A stamp from before a step that is smaller than its age seems younger by that step, and never older."""
    clock = Clock()
    elapsed, before = clock.elapsed(), clock.wall
    clock.passes(2 * HOUR)
    clock.wall -= HOUR
    assert elapsed.since(before) == HOUR


def test_a_stamp_from_the_future_ages_from_when_it_was_seen() -> None:
    """What an earlier process stamped while the clock was ahead does not live until that date comes."""
    clock = Clock()
    elapsed, stamp = clock.elapsed(), clock.wall + YEAR
    assert elapsed.since(stamp) == timedelta(0)
    clock.passes(HOUR)
    assert elapsed.since(stamp) == HOUR


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A machine without a server."""
    settings = RunnerSettings(RunnerPaths.from_root(tmp_path / "artifacts"))
    with Local(settings, str(tmp_path / "store.db")) as local:
        yield local
    unmount_below(tmp_path)


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["ahead", "back"])
def test_sessions_live_as_long_as_they_should_over_a_jump(local: Local, tmp_path: Path, jump: timedelta) -> None:
    """After a jump no session is closed early, one with a time of its own ends with it, an idle one after its day."""
    remote = make_remote(tmp_path / "remote")
    remote.commit({"note": "one\n"})
    repository = local.sessions.register_reachable(str(remote.path))
    clock = Clock()
    keeper = Housekeeper(
        store=local.store,
        sessions=local.sessions,
        supervisor=local.supervisor,
        cancel=local.engine.cancel,
        wait=local.engine.wait,
        elapsed=clock.elapsed(),
    )
    idle = local.sessions.open(repository, commit="main", owner="test")
    ends = datetime.now(UTC) + 1.5 * HOUR
    bounded = local.sessions.open(repository, commit="main", owner="test", expires_at=ends)
    clock.passes(HOUR)
    clock.wall += jump
    assert keeper.check_sessions() == []
    clock.passes(HOUR)
    assert keeper.check_sessions() == [bounded.id]
    clock.passes(IDLE)
    assert keeper.check_sessions() == [idle.id]
    assert local.store.sessions.get(bounded.id).status is SessionStatus.CANCELLED
    assert local.store.sessions.get(idle.id).status is SessionStatus.COMPLETED
