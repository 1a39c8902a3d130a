"""Forks, in both backends: the files of another workspace as they are, in a workspace of their own."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from debug_server.worktrees import WorktreeLease, WorktreePool
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote, fingerprint, git, make_special_files


def acquire(pool: WorktreePool, commit: str) -> WorktreeLease:
    return pool.acquire_worktree(commit_sha=commit, owner="tester", environment_hash=None)


def test_fork_has_the_same_files(pool: WorktreePool, remote: Remote) -> None:
    """Forks start from the files as they are now, ignored ones too, and are independent afterwards."""
    with acquire(pool, remote.commits[0]) as lease:
        (lease.path / "README").write_text("forked\n")
        (lease.path / "src" / "app.py").unlink()
        (lease.path / "cache.pyc").write_text("ignored")
        (lease.path / "new").mkdir()
        (lease.path / "new" / "file").write_text("x")
        git("add", "new", cwd=lease.path)
        forks = lease.fork(3)
        for fork in forks:
            assert fingerprint(fork.path) == fingerprint(lease.path)
            assert git("status", "--porcelain", cwd=fork.path) == git("status", "--porcelain", cwd=lease.path)
        (forks[0].path / "README").write_text("other\n")
        assert (forks[1].path / "README").read_text() == (lease.path / "README").read_text() == "forked\n"
        for fork in forks:
            fork.release()
    with acquire(pool, remote.commits[0]) as lease:
        assert git("status", "--porcelain", "--ignored", cwd=lease.path) == ""


@pytest.mark.parametrize("spoil", ["keep", "remove", "file", "link"])
def test_fork_of_any_state(pool: WorktreePool, remote: Remote, spoil: str) -> None:
    """Files that became folders and the reverse, empty folders, special files, rights, hard links, a ``.git`` that is
    gone or something else: a fork has them all as they are."""
    with acquire(pool, remote.commits[0]) as lease:
        root = lease.path
        shutil.rmtree(root / "docs")
        (root / "docs").write_text("a file now\n")
        (root / "README").unlink()
        (root / "README").mkdir()
        (root / "README" / "x").write_text("x")
        (root / "src").chmod(0o700)
        (root / "empty" / "inner").mkdir(parents=True)
        (root / "cache.pyc").mkdir(mode=0o750)
        for folder in (root, root / "src", root / "empty", root / "cache.pyc"):
            make_special_files(folder)
        (root / "-n").write_text("a name like an option\n")
        (root / "src" / "again.py").hardlink_to(root / "src" / "app.py")
        root.joinpath(os.fsdecode(b"latin-\xe9")).write_text("e")
        (root / "link").unlink()
        (root / "link").symlink_to("/nonexistent")
        root.chmod(0o750)
        if spoil != "keep":
            (root / ".git").rename(root / "was-git")
        if spoil == "file":
            (root / ".git").write_text("gitdir: /nonexistent\n")
        elif spoil == "link":
            (root / ".git").symlink_to("was-git")
        forks = lease.fork(2)
        for fork in forks:
            assert fingerprint(fork.path) == fingerprint(root)
            assert fork.path.stat().st_mode == root.stat().st_mode
            assert os.path.samefile(fork.path / "src" / "app.py", fork.path / "src" / "again.py")
            assert _kind(fork.path / ".git") == _kind(root / ".git")
            if spoil in ("keep", "link"):
                assert git("status", "--porcelain", cwd=fork.path) == git("status", "--porcelain", cwd=root)
            fork.release()
    with acquire(pool, remote.commits[0]) as lease:
        assert git("status", "--porcelain", "--ignored", cwd=lease.path) == ""


def test_a_fork_has_nothing_of_a_workspace_that_was_kept(make_pool: MakePool, remote: Remote) -> None:
    """With ``clean_checkout=False`` a fork is as its source is, whatever an earlier holder of its place left there."""
    pool = make_pool(clean_checkout=False)
    with acquire(pool, remote.commits[0]) as source:
        with acquire(pool, remote.commits[0]) as earlier:
            (earlier.path / "left").write_text("x")
            (earlier.path / "README").write_text("left\n")
        (fork,) = source.fork(1)
        assert fork.path == earlier.path
        assert fingerprint(fork.path) == fingerprint(source.path)
        fork.release()


def _kind(path: Path) -> int | None:
    return stat.S_IFMT(path.lstat().st_mode) if os.path.lexists(path) else None
