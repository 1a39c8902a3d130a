"""A process killed anywhere leaks nothing for longer than its lease."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from debug_server.disk import list_mounts
from debug_server.errors import CapacityExhaustedError, NotFoundError
from debug_server.worktrees import SessionPatch, WorktreePool, apply_patch
from debug_server.worktrees.patches import load_patch
from debug_server.worktrees.processes import processes_under
from tests.running import eventually
from tests.worktrees.places import Remote, fingerprint, is_empty, open_pool, random_remote, reference

ROOT = Path(__file__).parents[2]
STEPS = [
    (moment, step)
    for step in (
        "add",
        "lease",
        "build_ahead",
        "prepare",
        "mark_busy",
        "renew",
        "clean",
        "release",
    )
    for moment in ("before", "after")
]


def later() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


def assert_nothing_leaked(pool: WorktreePool, base: Path) -> None:
    # A git of the dead process has a moment to live, and no workspace is taken from under a process.
    eventually(lambda: set(processes_under(base)) <= {os.getpid()}, what="the end of what was begun")
    pool.recover()
    assert list_mounts(base) == []
    assert {row["status"] for row in pool.describe()} <= {"idle"}
    for name in ("building", "uppers", "aside", "trash"):
        eventually(partial(is_recovered, pool, name), what=name)


def is_recovered(pool: WorktreePool, name: str) -> bool:
    """Recovering leaves a folder that its maker had no time to lock alone for a second: the next round removes it."""
    if is_empty(pool.settings.state_dir / name):
        return True
    pool.recover()
    return False


@pytest.mark.parametrize(("moment", "step"), STEPS)
def test_killed_at_each_step(base: Path, remote: Remote, backend: str, moment: str, step: str) -> None:
    """Killed before or after any step of acquire and release: after the TTL everything is free, clean and usable."""
    program = [sys.executable, "-m", "tests.worktrees.programs.die_at"]
    arguments = [str(base), str(remote.path), backend, moment, step, remote.commits[0]]
    done = subprocess.run([*program, *arguments], cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    pool = open_pool(base, remote, backend, now=later, max_worktrees=1)
    assert_nothing_leaked(pool, base)
    expected = reference(remote.path, remote.commits[0], base / "reference")
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None, timeout=0) as lease:
        assert fingerprint(lease.path) == fingerprint(expected)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_while_patching(base: Path, remote: Remote, backend: str, moment: str) -> None:
    """A patch that was being applied is not stored, and nothing of it is in the next workspace; it applies again."""
    changed = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-one\n+patched\n"
    patch = SessionPatch(f"{changed}--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n")
    (base / "fix.patch").write_bytes(patch.data)
    program = [sys.executable, "-m", "tests.worktrees.programs.die_patching"]
    arguments = [str(base), str(remote.path), backend, moment, remote.commits[0]]
    done = subprocess.run([*program, *arguments], cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with pytest.raises(NotFoundError):
        load_patch(patch.sha256, base / "patches")
    pool = open_pool(base, remote, backend, now=later, max_worktrees=1)
    assert_nothing_leaked(pool, base)
    expected = reference(remote.path, remote.commits[0], base / "reference")
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None, timeout=0) as lease:
        assert fingerprint(lease.path) == fingerprint(expected)
        apply_patch(lease.path, patch, patches_dir=base / "patches")
        assert (lease.path / "README").read_text() == "patched\n"
    assert load_patch(patch.sha256, base / "patches").data == patch.data


def test_the_leases_of_a_killed_process_are_free_at_once(base: Path, remote: Remote, backend: str) -> None:
    """A process that leased every workspace by the Python API is killed: the next one need not wait for their time."""
    arguments = [str(base), str(remote.path), backend, remote.commits[0], "2"]
    program = [sys.executable, "-m", "tests.worktrees.programs.hold", *arguments]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        pool = open_pool(base, remote, backend, max_worktrees=2)
        with pytest.raises(CapacityExhaustedError):
            pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None, timeout=0)
        child.kill()
    pool = open_pool(base, remote, backend, max_worktrees=2)
    pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None, timeout=0).release()


def test_killed_at_random(base: Path, backend: str) -> None:
    """Killed at random moments of a busy life, half-built trees are never served and nothing stays mounted."""
    remote = random_remote(base / "remote", commits=40, seed=9)
    rng = random.Random(13)
    for _ in range(6):
        arguments = [str(base), str(remote.path), backend, *rng.sample(remote.commits, 8)]
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.worktrees.programs.churn", *arguments], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(rng.random() * 0.3)  # the moment of death is the point, not a wait for anything
        child.kill()
        child.communicate()
    pool = open_pool(base, remote, backend, now=later)
    assert_nothing_leaked(pool, base)
    for number, commit in enumerate(rng.sample(remote.commits, 10)):
        expected = reference(remote.path, commit, base / f"reference{number}")
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert fingerprint(lease.path) == fingerprint(expected)


@pytest.mark.parametrize("kept", [0, 20, 100])
def test_an_index_that_was_cut_off(base: Path, remote: Remote, kept: int) -> None:
    """A machine that goes down may leave a checkout with half an index: it is thrown away, and another one is made."""
    pool = open_pool(base, remote, "pool")
    pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None).release()
    spares = pool.settings.state_dir / "spares"
    clean = eventually(lambda: list(spares.glob("*/git/clean")), what="a clean spare")[0]
    index = clean.with_name("index")
    index.write_bytes(index.read_bytes()[:kept])
    clean.unlink()
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) as lease:
        expected = reference(remote.path, remote.commits[0], base / "reference")
        assert fingerprint(lease.path) == fingerprint(expected)
