"""Leases end: by release, by time, by a newer generation; and never under a running process."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server.disk import list_mounts
from debug_server.errors import CapacityExhaustedError, LeaseLostError
from debug_server.worktrees import WorktreeLease, WorktreePool
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote, git


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.moment = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.moment

    def pass_by(self, **span: float) -> None:
        self.moment += timedelta(**span)


def acquire(pool: WorktreePool, remote: Remote, timeout: float = 0) -> WorktreeLease:
    return pool.acquire_worktree(commit_sha=remote.commits[0], owner="tester", environment_hash="e", timeout=timeout)


def test_expired_lease_is_given_to_the_next(make_pool: MakePool, remote: Remote) -> None:
    """After its time a lease passes on with a higher generation, and the old holder can do nothing any more."""
    clock = Clock()
    pool = make_pool(now=clock, max_worktrees=1, lease_ttl=timedelta(minutes=5))
    old = acquire(pool, remote)
    (old.path / "old").write_text("x")
    clock.pass_by(minutes=4)
    old.renew()
    clock.pass_by(minutes=4)
    with pytest.raises(CapacityExhaustedError):
        acquire(pool, remote)
    clock.pass_by(minutes=2)
    new = acquire(pool, remote)
    assert new.path == old.path
    assert new.generation == old.generation + 1
    (new.path / "new").write_text("x")
    for step in (old.renew, old.release, old.reset):
        with pytest.raises(LeaseLostError):
            step()
    assert (new.path / "new").exists()
    assert not (new.path / "old").exists()
    new.release()


MAPPED = "kept = mmap.mmap(os.open('README', 0), 0, access=mmap.ACCESS_READ); os.closerange(3, 99)"


@pytest.mark.parametrize("hold", ["os.chdir('docs')", "kept = open('README')", MAPPED])
def test_lease_with_a_process_is_not_reissued(make_pool: MakePool, remote: Remote, hold: str) -> None:
    """An expired workspace in which a process works, reads or has a file mapped stays its own until it is gone."""
    clock = Clock()
    pool = make_pool(now=clock, max_worktrees=1)
    lease = acquire(pool, remote)
    program = f"import mmap, os; {hold}; os.path.exists('README') and os.chdir('/'); print(flush=True); input()"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", program], cwd=lease.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        clock.pass_by(hours=1)
        with pytest.raises(CapacityExhaustedError):
            acquire(pool, remote)
        assert pool.recover() == []
    finally:
        sleeper.communicate(b"\n")
    acquire(pool, remote).release()


def test_in_use_callback_protects(make_pool: MakePool, remote: Remote) -> None:
    """The caller's own knowledge counts too."""
    clock, used = Clock(), [True]
    pool = make_pool(now=clock, max_worktrees=1, in_use=lambda row: used[0])
    acquire(pool, remote)
    clock.pass_by(hours=1)
    with pytest.raises(CapacityExhaustedError):
        acquire(pool, remote)
    used[0] = False
    acquire(pool, remote).release()


def test_process_left_behind_does_not_reach_the_next_holder(pool: WorktreePool, remote: Remote) -> None:
    """What a process writes after the release lands in no other holder's workspace."""
    lease = acquire(pool, remote)
    program = "print(flush=True); input(); open('late', 'w').write('x'); print(flush=True); input()"
    writer = subprocess.Popen(
        [sys.executable, "-c", program], cwd=lease.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        lease.release()
        with acquire(pool, remote) as after:
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            writer.stdout.readline()
            assert not (after.path / "late").exists()
    finally:
        writer.communicate(b"\n")


def test_reclaim_removes_idle_workspaces(make_pool: MakePool, remote: Remote) -> None:
    """Idle for too long: the directory goes, and with it the memory of commit and environment; leased ones stay."""
    clock = Clock()
    pool = make_pool(now=clock)
    idle, held = acquire(pool, remote), acquire(pool, remote)
    idle.release()
    assert pool.reclaim_stale_worktrees(max_idle_age=timedelta(hours=1)) == []
    clock.pass_by(minutes=20)
    held.renew()
    clock.pass_by(minutes=20)
    held.renew()
    clock.pass_by(minutes=25)
    assert pool.reclaim_stale_worktrees(max_idle_age=timedelta(hours=1)) == [idle.path]
    assert not idle.path.exists()
    assert (held.path / "README").exists()
    rows = {row["path"]: row for row in pool.describe()}
    assert rows[str(idle.path)]["commit"] is None
    assert rows[str(idle.path)]["environment_hash"] is None
    again = acquire(pool, remote)
    assert again.path == idle.path
    assert again.needs_dependency_sync
    again.release()
    held.release()


def test_recover_cleans_expired_leases(make_pool: MakePool, remote: Remote, base: Path) -> None:
    """Recovering unmounts and frees what nobody renewed, and leaves live leases alone."""
    clock = Clock()
    pool = make_pool(now=clock)
    lost = acquire(pool, remote)
    clock.pass_by(minutes=20)
    live = acquire(pool, remote)
    clock.pass_by(minutes=15)
    assert make_pool(now=clock).recover() == [lost.path]
    assert {row["path"]: row["status"] for row in pool.describe()} == {str(lost.path): "idle", str(live.path): "busy"}
    assert git("status", "--porcelain", cwd=live.path) == ""
    live.release()
    assert list_mounts(base) == []


def test_describe_names_the_contract(pool: WorktreePool, remote: Remote) -> None:
    """The description has the fields that people read."""
    with acquire(pool, remote) as lease:
        (row,) = pool.describe()
        assert {"id", "path", "status", "commit", "environment_hash", "updated_at"} <= set(row)
        assert (row["path"], row["status"], row["commit"]) == (str(lease.path), "busy", remote.commits[0])
