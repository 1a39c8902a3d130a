"""The cache of trees: layers where they save something, gone when nobody needs them, never while somebody does."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from debug_server.worktrees import WorktreeLease, WorktreePool
from debug_server.worktrees.trees import MAX_LAYERS
from tests.worktrees.places import fingerprint, make_remote, missing_for, open_pool, random_remote, reference


@pytest.fixture(autouse=True)
def overlay(base: Path) -> None:
    """These tests need mounts."""
    if reason := missing_for("overlay", base):
        pytest.skip(f"overlay: {reason}")


def acquire(pool: WorktreePool, commit: str) -> WorktreeLease:
    return pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None)


def layers(pool: WorktreePool, commit: str) -> list[str]:
    return (pool.settings.state_dir / "trees" / commit / "layers").read_text().split()


def trees(pool: WorktreePool) -> set[str]:
    return {path.parent.name for path in (pool.settings.state_dir / "trees").glob("*/layers")}


def test_neighbours_are_layers(base: Path) -> None:
    """A neighbour of a known commit costs only what differs; chains stay short; new attributes start afresh."""
    remote = make_remote(base / "remote")
    remote.commit({f"d{number}/file": "x" * 5000 for number in range(50)})
    for number in range(MAX_LAYERS + 3):
        remote.commit({f"d{number}/file": f"changed {number}\n", f"d{number + 1}/file": None})
    special = remote.commit({".gitattributes": "* text eol=crlf\n", "d1/file": "again\n"})
    pool = open_pool(base, remote, "overlay")
    for commit in remote.commits:
        acquire(pool, commit).release()
    depths = [len(layers(pool, commit)) for commit in remote.commits]
    assert depths[:MAX_LAYERS] == list(range(1, MAX_LAYERS + 1))
    assert max(depths) == MAX_LAYERS
    assert layers(pool, special) == [special]
    second = pool.settings.state_dir / "trees" / remote.commits[1] / "root"
    files = {str(path.relative_to(second)) for path in second.glob("d*/**/*") if not path.is_dir()}
    assert files == {"d0/file"}
    assert stat.S_ISCHR((second / "d1").lstat().st_mode)  # a whiteout: the folder is gone


def test_old_trees_are_collected(base: Path) -> None:
    """Trees that nobody used for long go; those below a live workspace stay, with all their layers."""
    remote = random_remote(base / "remote", commits=8, seed=2)
    pool = open_pool(base, remote, "overlay")
    for commit in remote.commits:
        acquire(pool, commit).release()
    held = acquire(pool, remote.commits[2])
    for name in trees(pool):
        os.utime(pool.settings.state_dir / "trees" / name / "layers", (1, 1))
    pool.reclaim_stale_worktrees(max_idle_age=timedelta(hours=1))
    assert trees(pool) == set(layers(pool, remote.commits[2]))
    expected = reference(remote.path, remote.commits[2], base / "reference")
    assert fingerprint(held.path) == fingerprint(expected)
    held.release()
    for name in trees(pool):
        os.utime(pool.settings.state_dir / "trees" / name / "layers", (1, 1))
    pool.reclaim_stale_worktrees(max_idle_age=timedelta(hours=1))
    assert trees(pool) == set()
    with acquire(pool, remote.commits[2]) as lease:
        assert fingerprint(lease.path) == fingerprint(expected)


def test_disk_budget(base: Path) -> None:
    """Beyond the budget the least recently used trees go as new ones come."""
    remote = make_remote(base / "remote")
    for number in range(5):
        remote.commit({".gitattributes": f"# {number}\n", "big": os.urandom(400_000)})  # each starts a tree of its own
    pool = open_pool(base, remote, "overlay", tree_budget_bytes=1_000_000)
    for commit in remote.commits:
        acquire(pool, commit).release()
    assert trees(pool) == set(remote.commits[-2:])


def test_trees_of_an_earlier_boot_are_dropped(base: Path) -> None:
    """After a reboot the trees, which were never synced to the disk, are built anew."""
    remote = random_remote(base / "remote", commits=2, seed=2)
    pool = open_pool(base, remote, "overlay")
    acquire(pool, remote.commits[0]).release()
    root = pool.settings.state_dir / "trees" / remote.commits[0] / "root"
    victim = next(path for path in sorted(root.rglob("*")) if path.is_file() and ".git" not in path.parts)
    victim.write_bytes(b"")  # what a power cut leaves
    (pool.settings.state_dir / "trees" / ".boot").write_text("another boot\n")
    expected = reference(remote.path, remote.commits[0], base / "reference")
    with acquire(open_pool(base, remote, "overlay"), remote.commits[0]) as lease:
        assert fingerprint(lease.path) == fingerprint(expected)
