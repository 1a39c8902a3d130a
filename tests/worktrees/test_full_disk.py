"""A disk that fills up in the middle: a clear error, and everything works again once there is room."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from debug_server.disk import detach, list_mounts
from debug_server.errors import DebugServerError, DiskFullError, PatchApplicationError
from debug_server.worktrees import SessionPatch, WorktreePool, apply_patch
from debug_server.worktrees.artifact_files import copy_artifacts
from tests.home import plain_git
from tests.running import eventually
from tests.worktrees.places import Remote, fingerprint, git, is_empty, make_remote, open_pool, reference


@pytest.fixture
def small(base: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    place = base / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield place
    finally:
        for mount in reversed(list_mounts(place)):
            detach(mount.target)


@pytest.fixture
def large(base: Path) -> Remote:
    """A commit of nothing, one of 3 MB that cannot be packed, and one that changes a part of it."""
    remote = make_remote(base / "remote")
    remote.commit({"a": "a\n"})
    remote.commit({f"big{number}": os.urandom(500_000) for number in range(6)})
    remote.commit({"big0": os.urandom(500_000)})
    return remote


def fill(place: Path, *, leave: int) -> Path:
    """Take all but ``leave`` bytes."""
    ballast = place / "ballast"
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    with ballast.open("wb") as out:
        out.write(b"x" * max(0, free - leave))
    return ballast


@pytest.mark.parametrize("leave", [0, 200_000, 2_000_000, 4_000_000, 5_000_000])
def test_acquire(base: Path, small: Path, large: Remote, backend: str, leave: int) -> None:
    """Wherever in mirror, tree or workspace the space ends, the error says so, and the pool survives it."""
    pool = open_pool(base, large, backend)
    settings = replace(pool.settings, bare_path=small / "repo.bare", worktree_root=small / "worktrees")
    pool = WorktreePool(pool._store, settings)
    ballast = fill(small, leave=leave)
    with pytest.raises(DiskFullError, match="No space left on device: close or reset sessions"):
        pool.acquire_worktree(commit_sha=large.commits[1], owner="t", environment_hash=None)
    ballast.unlink()
    trash = settings.state_dir / "trash"
    eventually(partial(is_empty, trash), what="the removal of what was begun")  # in the background
    expected = reference(large.path, large.commits[1], base / "reference")
    with pool.acquire_worktree(commit_sha=large.commits[1], owner="t", environment_hash=None) as lease:
        assert fingerprint(lease.path) == fingerprint(expected)
        assert git("status", "--porcelain", cwd=lease.path) == ""
    assert {row["status"] for row in pool.describe()} == {"idle"}


def test_patch(base: Path, small: Path) -> None:
    """A patch that does not fit on the disk changes nothing."""
    remote = make_remote(small / "work")
    remote.commit({"one": "1\n", "two": "2\n"})
    (remote.path / "one").write_text("first\n")
    (remote.path / "two").write_bytes(os.urandom(2_000_000))
    patch = SessionPatch(git_diff(remote.path))
    git("checkout", "-q", ".", cwd=remote.path)
    before = fingerprint(remote.path)
    ballast = fill(small, leave=1_000_000)
    with pytest.raises(PatchApplicationError):
        apply_patch(remote.path, patch, patches_dir=base / "patches")
    assert fingerprint(remote.path) == before
    with pytest.raises(DebugServerError, match="cannot be stored"):
        apply_patch(remote.path, patch, patches_dir=small / "patches")
    ballast.unlink()
    apply_patch(remote.path, patch, patches_dir=base / "patches")
    assert (remote.path / "one").read_text() == "first\n"


def test_artifacts(base: Path, small: Path) -> None:
    """A file that does not fit is named with the reason, no half of it stays, and smaller ones are kept."""
    (base / "work").mkdir()
    (base / "work" / "big").write_bytes(bytes(3_000_000))
    (base / "work" / "small").write_bytes(b"kept")
    fill(small, leave=1_000_000)
    found, refused = copy_artifacts(base / "work", ["*"], small / "to")
    assert [(item.name, item.path.read_bytes()) for item in found] == [("small", b"kept")]
    assert [item.name for item in refused] == ["big"] and "space" in refused[0].reason
    assert not (small / "to" / "big").exists()


def git_diff(path: Path) -> bytes:
    return subprocess.run(
        ["git", "diff", "--binary"], cwd=path, env=plain_git(), capture_output=True, check=True
    ).stdout
