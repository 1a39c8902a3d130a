"""A keeper that takes too long to begin, and the fork server's own end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from debug_server.disk.ownership import Owner
from debug_server.errors import DiskFullError, KeeperError
from debug_server.model import ExitReason
from debug_server.runner import keeper_pool
from debug_server.runner.keeper.tree import children
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.launch import LaunchOrder, launch
from tests.running import eventually
from tests.small_disk import disk_of_few_files, use_up_files


@pytest.fixture
def pool(nothing_left: None) -> Iterator[KeeperPool]:
    """With a fork server of its own."""
    with KeeperPool() as pool:
        yield pool


def _order(folder: Path, number: int, text: str) -> LaunchOrder:
    return LaunchOrder(
        command_id=number,
        attempt=1,
        argv=["/bin/sh", "-c", text],
        env={},
        cwd=folder,
        limits={},
        log_path=folder / f"{number}.log",
        kill_grace=0.2,
    )


def _fork_server(pool: KeeperPool) -> int:
    assert pool._process is not None
    return pool._process.pid


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_a_stopped_keeper_is_given_up_and_never_begins(pool: KeeperPool, tmp_path: Path) -> None:
    """Nothing within the deadline: an error that says so; set going again the keeper runs nothing and leaves.

    It does so although the fork server has been stopped, too, before it closed its copy of our connection.
    """
    keeper = pool.take()
    copy = keeper._connection.dup()
    server = _fork_server(pool)
    spares = children(server)
    for pid in spares:
        os.kill(pid, signal.SIGSTOP)
    pool.give_back(keeper)  # the next command is its own
    try:
        with pytest.raises(KeeperError, match=r"within 0\.2 s"):
            launch(pool, tmp_path / "keepers", _order(tmp_path, 1, "touch ran"), start_seconds=0.2)
    finally:
        pool.close()
        for pid in spares:  # the fork server continues them, too, when its server leaves: some may have ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    eventually(lambda: not _name(server), what="the end of the fork server and its keepers")
    copy.close()
    assert not (tmp_path / "ran").exists() and not [*(tmp_path / "keepers").iterdir()]


def test_a_log_that_does_not_fit_on_the_disk(pool: KeeperPool, tmp_path: Path) -> None:
    """Without an inode for its log a command does not start, and the error may be retried."""
    with disk_of_few_files(tmp_path / "disk", files=100) as disk:
        use_up_files(disk)
        order = replace(_order(tmp_path, 1, "touch ran"), log_path=disk / "1.log")
        with pytest.raises(DiskFullError, match=r"No space left on device.*close or reset sessions"):
            launch(pool, tmp_path / "keepers", order)
        with pytest.raises(DiskFullError, match="No space left on device"):
            launch(pool, disk / "keepers", order)
        with pytest.raises(DiskFullError, match="cannot be written"):
            Owner(disk)
    assert not (tmp_path / "ran").exists()


def test_a_deadline_at_any_moment_of_the_start(pool: KeeperPool, tmp_path: Path) -> None:
    """Whenever the deadline falls, a command is either refused and never runs, or runs once and to its end."""
    refused = set()
    for number in range(1, 61):
        order = _order(tmp_path, number, f"echo once >> ran-{number}")
        try:
            running = launch(pool, tmp_path / "keepers", order, start_seconds=number % 20 * 1e-4 + 1e-5)
        except KeeperError:
            refused.add(number)
        else:
            assert running.wait().reason is ExitReason.EXITED
            running.dispose()
    server = _fork_server(pool)
    pool.close()
    eventually(lambda: not _name(server), what="the end of the fork server and its keepers")
    ran = {number for number in range(1, 61) if (tmp_path / f"ran-{number}").exists()}
    assert ran == set(range(1, 61)) - refused
    assert all((tmp_path / f"ran-{number}").read_text() == "once\n" for number in ran)


def test_a_fork_server_that_is_let_go_leaves_no_zombie(pool: KeeperPool, tmp_path: Path) -> None:
    """It stays for its last keeper, whose command ends as it should, and is waited for when it has gone."""
    order = _order(tmp_path, 1, "while [ ! -e go ]; do sleep 0.02; done")
    running = launch(pool, tmp_path / "keepers", order)
    server = _fork_server(pool)
    pool.close()
    assert _name(server) == "ds-forkserver"
    (tmp_path / "go").touch()
    assert running.wait().reason is ExitReason.EXITED
    running.dispose()
    eventually(lambda: not Path(f"/proc/{server}").exists(), what="the end of the fork server, and of its entry")


def test_keepers_that_nobody_has_taken_are_let_go(
    pool: KeeperPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the fork server has made ahead of time end too, and while processes are scarce none is made."""
    monkeypatch.setattr(keeper_pool, "_SCARCE_SECONDS", 3600)
    taken = pool.take()
    server = _fork_server(pool)
    eventually(lambda: len(children(server)) == 3, what="two keepers for later commands")

    def only_one_is_left() -> bool:
        pool.close_idle()  # a keeper that has been forked may not have been handed over yet
        return len(children(server)) == 1

    eventually(only_one_is_left, what="the end of both")
    running = launch(pool, tmp_path / "keepers", _order(tmp_path, 1, "exit 3"))
    assert len(children(server)) == 2
    assert running.wait().exit_code == 3
    running.dispose()
    taken.close()


def test_keepers_that_wait_are_let_go(pool: KeeperPool, tmp_path: Path) -> None:
    """Their processes are somebody else's to have; the next command gets a keeper all the same."""
    waiting = pool.take()
    pool.give_back(waiting)
    waiting_pid = waiting._process[0] if waiting._process else 0
    assert _name(waiting_pid)
    pool.close_idle()
    eventually(lambda: not _name(waiting_pid), what="the end of a keeper that waited")
    running = launch(pool, tmp_path / "keepers", _order(tmp_path, 1, "exit 3"))
    assert running.wait().exit_code == 3
    running.dispose()
