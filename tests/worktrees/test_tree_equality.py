"""Whatever the order of commits, a workspace holds what git itself checks out."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.worktrees.places import fingerprint, git, open_pool, random_remote, reference

COMMITS = int(os.environ.get("DEBUG_SERVER_TREE_COMMITS", "20"))


def test_random_commits_equal_checkout(base: Path, backend: str) -> None:
    """Random commits of a history with links, modes, end-of-line rules and renames equal a fresh git checkout."""
    remote = random_remote(base / "remote", commits=max(60, COMMITS), seed=11)
    pool = open_pool(base, remote, backend)
    rng = random.Random(5)
    for number, commit in enumerate(rng.sample(remote.commits, COMMITS)):
        expected = reference(remote.path, commit, base / f"reference{number}")
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert fingerprint(lease.path) == fingerprint(expected), f"commit {commit}, number {number}"
            assert git("status", "--porcelain", cwd=lease.path) == ""
            assert lease.diff() == b""


def test_history_in_order_equals_checkout(base: Path, backend: str) -> None:
    """Following a history commit by commit, deeper than the longest chain of layers, stays exact."""
    remote = random_remote(base / "remote", commits=26, seed=3)
    pool = open_pool(base, remote, backend)
    for number, commit in enumerate(remote.commits):
        expected = reference(remote.path, commit, base / f"reference{number}")
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert fingerprint(lease.path) == fingerprint(expected), f"commit {commit}, number {number}"


def test_index_is_older_than_no_file(base: Path, backend: str) -> None:
    """In a fresh workspace every file is older than git's index, so that the first status reads none of them."""
    remote = random_remote(base / "remote", commits=3, seed=4)
    pool = open_pool(base, remote, backend)
    for commit in remote.commits:
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            written = int((lease.path / ".git" / "index").stat().st_mtime)
            for name in git("ls-files", cwd=lease.path).split():
                assert int((lease.path / name).lstat().st_mtime) < written
            assert git("diff-files", "--name-only", cwd=lease.path) == ""
