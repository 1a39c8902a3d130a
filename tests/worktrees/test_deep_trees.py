"""A holder may make folders deeper than Python's stack and longer than the kernel's paths."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.errors import WorktreePoolError
from debug_server.worktrees import WorktreePool
from tests.running import eventually
from tests.worktrees.places import Remote, make_remote, open_pool

_NEST = """
import os, sys
name, levels = sys.argv[1:]
for _ in range(int(levels)):
    os.mkdir(name)
    os.chdir(name)
open("bottom", "w").write("reached")
"""
_DEEP = ("d", 1_200)  # beyond Python's stack
_TOO_DEEP = ("d" * 200, 21)  # beyond a path of 4,095 bytes


@pytest.fixture(autouse=True)
def no_depth_left(base: Path) -> Iterator[None]:
    """pytest removes old folders by recursion, which does not get to the bottom of these."""
    yield
    eventually(lambda: not any(item.name.startswith("worktree-") for item in threading.enumerate()), what="idle chores")
    for folder in ("worktrees", "deep"):
        subprocess.run(["rm", "-rf", "--one-file-system", str(base / folder)], check=False)


def nest(folder: Path, name: str, levels: int) -> None:
    """Make folders inside folders; only a process that goes down with them can."""
    folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", _NEST, name, str(levels)], cwd=folder, check=True)


def test_a_commit_of_deep_folders(base: Path, backend: str) -> None:
    """A commit that holds them is checked out."""
    remote = make_remote(base / "deep")
    nest(remote.path, *_DEEP)
    commit = remote.commit({})
    pool = open_pool(base, remote, backend)
    with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
        assert (lease.path / ("d/" * 1_200) / "bottom").read_text() == "reached"


def test_diff_of_deep_folders(pool: WorktreePool, remote: Remote) -> None:
    """What git can read is in the patch, however deep."""
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) as lease:
        nest(lease.path, *_DEEP)
        assert b"+reached" in lease.diff()


def test_diff_beyond_the_longest_path_says_so(pool: WorktreePool, remote: Remote) -> None:
    """What git cannot read is not silently left out: the error names the path and the limit. An ignored one is fine."""
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) as lease:
        nest(lease.path / "deep", *_TOO_DEEP)
        with pytest.raises(WorktreePoolError, match=r"'deep/ddd.*exceeds the 4095 bytes that git can read: remove"):
            lease.diff()
        (lease.path / ".gitignore").write_text("deep/\n")
        assert b"+deep/" in lease.diff()
