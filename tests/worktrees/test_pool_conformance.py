"""What both backends promise: the workspace equals the commit, git works in it, and it comes back clean."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debug_server.errors import CapacityExhaustedError, InvalidInputError, LeaseLostError, UnknownCommitError
from debug_server.worktrees import SessionPatch, WorktreeLease, WorktreePool, build_pool_from_repository
from tests.running import eventually
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote, fingerprint, git, is_empty, make_special_files, reference


def acquire(pool: WorktreePool, commit: str, environment_hash: str | None = None, **more: Any) -> WorktreeLease:
    return pool.acquire_worktree(commit_sha=commit, owner="tester", environment_hash=environment_hash, **more)


def test_equals_checkout(pool: WorktreePool, remote: Remote, base: Path) -> None:
    """A workspace of each commit holds exactly what git checks out."""
    for number, commit in enumerate([*remote.commits, *remote.commits]):
        expected = reference(remote.path, commit, base / f"reference{number}")
        with acquire(pool, commit) as lease:
            assert fingerprint(lease.path) == fingerprint(expected)
            assert git("status", "--porcelain", cwd=lease.path) == ""
            assert git("rev-parse", "HEAD", cwd=lease.path) == commit == lease.commit_sha


def test_git_works_inside(pool: WorktreePool, remote: Remote) -> None:
    """status, diff, log, tags and commit work in a workspace, and a commit stays private to it."""
    git("tag", "v1", remote.commits[0], cwd=remote.path)
    with acquire(pool, "main") as lease:
        (lease.path / "README").write_text("changed\n")
        assert git("status", "--porcelain", cwd=lease.path) == "M README"
        assert "+changed" in git("diff", cwd=lease.path)
        assert len(git("log", "--format=%H", cwd=lease.path).splitlines()) == 3
        assert git("describe", "--tags", cwd=lease.path).startswith("v1-2-")
        git("commit", "-qam", "inside", cwd=lease.path)
        assert git("rev-parse", "HEAD~1", cwd=lease.path) == remote.commits[-1]
    with acquire(pool, "main") as lease:
        assert git("rev-parse", "HEAD", cwd=lease.path) == remote.commits[-1]
        assert (lease.path / "README").read_text() == "three\n"


def test_folder_rename_inside(pool: WorktreePool, remote: Remote) -> None:
    """A folder of the tree can be renamed, as on any disk."""
    with acquire(pool, remote.commits[0]) as lease:
        (lease.path / "docs").rename(lease.path / "papers")
        assert (lease.path / "papers" / "guide.txt").read_text() == "guide\n"
        assert not (lease.path / "docs").exists()


def test_release_drops_everything(pool: WorktreePool, remote: Remote) -> None:
    """Edits, deletions, new, ignored and read-only files, nested repositories and links are gone for the next one."""
    with acquire(pool, remote.commits[0]) as lease:
        clean = fingerprint(lease.path)
        (lease.path / "README").unlink()
        (lease.path / "README").mkdir()
        (lease.path / "README" / "inner").write_text("x")
        (lease.path / "docs" / "guide.txt").chmod(0o755)
        (lease.path / "cache.pyc").write_text("ignored")
        (lease.path / "nested").mkdir()
        git("init", "-q", cwd=lease.path / "nested")
        (lease.path / "src" / "app.py").unlink()
        (lease.path / "src").rmdir()
        (lease.path / "src").symlink_to("/etc")
        (lease.path / "locked").mkdir()
        (lease.path / "locked" / "file").write_text("x")
        (lease.path / "locked").chmod(0o500)
        first = lease.path
    with acquire(pool, remote.commits[0]) as lease:
        assert lease.path == first
        assert fingerprint(lease.path) == clean
        assert git("status", "--porcelain", "--ignored", cwd=lease.path) == ""


def test_release_drops_what_git_does_not_see(pool: WorktreePool, remote: Remote) -> None:
    """Pipes, sockets, devices, rights of folders, deep folders and attributes do not reach the next holder."""
    with acquire(pool, remote.commits[0]) as lease:
        clean = fingerprint(lease.path)
        for folder in (".", "docs", "src/made", "cache.pyc", "nested"):
            (lease.path / folder).mkdir(exist_ok=True)
            make_special_files(lease.path / folder)
        git("init", "-q", cwd=lease.path / "nested")
        (lease.path / "README").unlink()
        os.mkfifo(lease.path / "README")
        (lease.path / "docs" / "guide.txt").chmod(0o600)
        (lease.path / "docs").chmod(0o700)
        (lease.path / "src").chmod(0o2775)
        lease.path.chmod(0o711)
        with suppress(OSError):  # not every file system has them
            os.setxattr(lease.path / "docs", "user.note", b"x")
        deep = lease.path / "deep"
        deep.mkdir()
        for _ in range(1200):
            deep /= "d"
            deep.mkdir()
    for _ in range(2):
        with acquire(pool, remote.commits[0]) as lease:
            assert fingerprint(lease.path) == clean
            assert lease.path.stat().st_mode == (lease.path / "docs").stat().st_mode
            assert (lease.path / "docs" / "guide.txt").stat().st_mode == (lease.path / ".gitignore").stat().st_mode
            with suppress(OSError):
                assert "user.note" not in os.listxattr(lease.path / "docs")
    for name in ("uppers", "aside", "trash"):
        eventually(partial(is_empty, pool.settings.state_dir / name), what=name)


def test_hidden_changes_are_found(pool: WorktreePool, remote: Remote) -> None:
    """A holder who tampers with the index, the dates and the excludes cannot leave files to the next one."""
    with acquire(pool, remote.commits[0]) as lease:
        path = lease.path / "README"
        before = path.stat()
        git("update-index", "--assume-unchanged", "README", cwd=lease.path)
        path.write_text("six\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        (lease.path / ".git" / "info").mkdir(exist_ok=True)
        (lease.path / ".git" / "info" / "exclude").write_text("*\n")
        (lease.path / "stowaway").write_text("x")
    with acquire(pool, remote.commits[0]) as lease:
        assert (lease.path / "README").read_text() == "one\n"
        assert not (lease.path / "stowaway").exists()


def test_another_name_of_a_file_does_not_reach_the_next(pool: WorktreePool, remote: Remote, base: Path) -> None:
    """A holder who keeps a hard link to a file of the commit cannot change the next holder's file through it."""
    outside = base / "outside"
    outside.touch()
    with acquire(pool, remote.commits[0]) as lease, suppress(OSError):  # no link leaves a mount
        outside.unlink()
        outside.hardlink_to(lease.path / "README")
    with acquire(pool, remote.commits[0]) as lease:
        outside.write_text("changed\n")
        assert (lease.path / "README").read_text() == "one\n"


def test_a_released_workspace_is_empty_and_nothing_piles_up(make_pool: MakePool, remote: Remote) -> None:
    """Release leaves an empty directory at once; one holder after the other needs no more than two checkouts."""
    pool = make_pool(max_worktrees=2)
    for number in range(12):
        lease = acquire(pool, remote.commits[number % 2])
        assert not (lease.path / "left").exists()
        (lease.path / "left").write_text("x")
        lease.release()
        assert list(lease.path.iterdir()) == []
    assert len(pool.describe()) == 1
    assert len(list((pool.settings.state_dir / "spares").glob("*"))) <= 2


@pytest.mark.parametrize("spoil", ["remove", "file", "link"])
def test_gitdir_may_be_destroyed(pool: WorktreePool, remote: Remote, spoil: str) -> None:
    """A holder who removes or replaces ``.git`` does not harm the next one."""
    with acquire(pool, remote.commits[0]) as lease:
        (lease.path / ".git").rename(lease.path / "was-git")
        if spoil == "file":
            (lease.path / ".git").write_text("gitdir: /nonexistent\n")
        elif spoil == "link":
            (lease.path / ".git").symlink_to("/etc")
    with acquire(pool, remote.commits[1]) as lease:
        assert git("status", "--porcelain", "--ignored", cwd=lease.path) == ""


def test_names_resolve(pool: WorktreePool, remote: Remote) -> None:
    """Branches, tags, short and full shas and HEAD name commits, and a branch means what the remote has now."""
    git("tag", "-a", "-m", "note", "annotated", remote.commits[0], cwd=remote.path)
    names = {
        "main": remote.commits[2],
        "origin/main": remote.commits[2],
        "refs/heads/main": remote.commits[2],
        "HEAD": remote.commits[2],
        "annotated": remote.commits[0],
        remote.commits[1][:8]: remote.commits[1],
        remote.commits[1].upper(): remote.commits[1],
    }
    for name, commit in names.items():
        with acquire(pool, name) as lease:
            assert lease.commit_sha == commit, name
    newest = remote.commit({"README": "four\n"})
    with acquire(pool, "main") as lease:
        assert lease.commit_sha == newest


@pytest.mark.parametrize("name", ["nosuch", "f" * 40, "abcdef12", "--upload-pack=x", "a b", "", "main..main", "main\n"])
def test_unknown_commit(pool: WorktreePool, remote: Remote, name: str) -> None:
    """A name that means nothing is an UnknownCommitError that repeats it, and costs no workspace."""
    with pytest.raises(UnknownCommitError) as caught:
        acquire(pool, name)
    assert repr(name) in str(caught.value)
    assert pool.describe() == []


def test_needs_dependency_sync(pool: WorktreePool, remote: Remote) -> None:
    """A workspace asks for a sync exactly when it was last used with other dependencies."""
    answers = []
    for wanted in ("e1", "e1", "e2", None, "e2"):
        with acquire(pool, remote.commits[0], wanted) as lease:
            answers.append(lease.needs_dependency_sync)
    assert answers == [True, False, True, False, False]


def test_capacity(make_pool: MakePool, remote: Remote) -> None:
    """A full pool refuses after the deadline, and serves again once something is released."""
    pool = make_pool(max_worktrees=2)
    held = [acquire(pool, remote.commits[0]) for _ in range(2)]
    with pytest.raises(CapacityExhaustedError, match=r"all 2 workspaces .* \(capacity exhausted\)"):
        acquire(pool, remote.commits[0], timeout=0.1)
    held.pop().release()
    held.append(acquire(pool, remote.commits[1], timeout=0.1))
    assert len({lease.path for lease in held}) == 2
    for lease in held:
        lease.release()
        lease.release()  # a second time does nothing
    assert [row["status"] for row in pool.describe()] == ["idle", "idle"]


def test_a_swarm_needs_no_setting(pool: WorktreePool, remote: Remote) -> None:
    """Without a bound there are as many workspaces as are wanted at a time."""
    held = [acquire(pool, remote.commits[number % 3]) for number in range(20)]
    assert len({lease.path for lease in held}) == 20
    for lease in held:
        lease.release()


def test_a_short_disk_bounds_a_pool(pool: WorktreePool, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too little free space a further caller waits for a workspace, and is told for what; the first does not."""
    monkeypatch.setattr("debug_server.worktrees.pool._KEPT_FREE_BYTES", 1 << 60)
    monkeypatch.setattr("debug_server.worktrees.pool._KEPT_FREE_SHARE", 1)
    held = acquire(pool, remote.commits[0])
    waits: list[str] = []
    with pytest.raises(
        CapacityExhaustedError, match=r"all 1 workspaces .* has only \d+ MiB free \(capacity exhausted\)"
    ):
        pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None, timeout=0.1, on_wait=waits.append)
    assert len(waits) == 1 and "MiB free" in waits[0]
    with pytest.raises(CapacityExhaustedError, match="free space"):
        held.fork(1)
    held.release()
    acquire(pool, remote.commits[0], timeout=0.1).release()


def test_owner_is_needed(pool: WorktreePool, remote: Remote) -> None:
    """A lease without an owner is refused."""
    with pytest.raises(InvalidInputError, match="owner"):
        pool.acquire_worktree(commit_sha=remote.commits[0], owner="", environment_hash=None)


def test_values_of_the_wrong_kind_are_named(pool: WorktreePool) -> None:
    """A commit or an age that is none is an error of ours that names it, and costs no workspace."""
    with pytest.raises(InvalidInputError, match="commit_sha is None"):
        pool.acquire_worktree(commit_sha=None, owner="me", environment_hash=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"max_idle_age is 5: it must be a datetime\.timedelta"):
        pool.reclaim_stale_worktrees(max_idle_age=5)  # type: ignore[arg-type]
    assert pool.describe() == []


def test_release_without_cleaning(make_pool: MakePool, remote: Remote) -> None:
    """With ``clean_checkout=False`` the next holder of the same commit finds the files, another commit's does not."""
    pool = make_pool(clean_checkout=False, max_worktrees=1)
    with acquire(pool, remote.commits[0]) as lease:
        (lease.path / "cache.pyc").write_text("kept")
    with acquire(pool, remote.commits[0]) as lease:
        assert (lease.path / "cache.pyc").read_text() == "kept"
    with acquire(pool, remote.commits[1]) as lease:
        assert not (lease.path / "cache.pyc").exists()


def test_unclean_release_does_not_reach_the_next(pool: WorktreePool, remote: Remote) -> None:
    """``release(clean=False)`` leaves the files on the disk, but never to a holder who wants a clean checkout."""
    lease = acquire(pool, remote.commits[0])
    (lease.path / "left").write_text("x")
    lease.release(clean=False)
    assert (lease.path / "left").exists()
    with acquire(pool, remote.commits[0]) as again:
        assert again.path == lease.path
        assert not (again.path / "left").exists()


def test_diff_applies_to_the_commit(pool: WorktreePool, remote: Remote) -> None:
    """``diff`` gives new, binary, removed, renamed and re-moded files as a patch that makes the same tree again."""
    with acquire(pool, remote.commits[0]) as lease:
        (lease.path / "README").write_bytes(b"no newline")
        (lease.path / "src" / "app.py").rename(lease.path / "src" / "moved.py")
        (lease.path / "docs" / "guide.txt").chmod(0o755)
        (lease.path / "blob.bin").write_bytes(bytes(range(256)))
        (lease.path / "link").unlink()
        (lease.path / "link").symlink_to("README")
        (lease.path / "cache.pyc").write_text("ignored")
        patch = lease.diff()
        (lease.path / "cache.pyc").unlink()
        changed = fingerprint(lease.path)
    assert b"rename from src/app.py" in patch
    with acquire(pool, remote.commits[0]) as lease:
        assert lease.diff() == b""
        lease.reset(SessionPatch(patch))
        assert fingerprint(lease.path) == changed
        (lease.path / "README").write_text("again")
        lease.reset()
        assert git("status", "--porcelain", "--ignored", cwd=lease.path) == ""


def test_diff_leaves_bytecode_out(pool: WorktreePool, remote: Remote, base: Path) -> None:
    """Bytecode that a run leaves is no change; a file that somebody wrote beside it is, and so is bytecode of the
    commit or what .gitignore takes back."""
    cached = "src/__pycache__/app.cpython-311.pyc"
    committed = remote.commit({".gitignore": "!/kept/__pycache__/*.pyc\n", cached: b"old\0"})
    written = {
        "__pycache__/top.cpython-311.pyc": False,
        "a/b/__pycache__/x.cpython-313.opt-1.pyc": False,
        "a/__pycache__/x.cpython-311.pyc.140234": False,
        "a/__pycache__/notes.txt": True,
        "a/plain.pyc": True,
        "kept/__pycache__/y.pyc": True,
        cached: True,
    }
    with acquire(pool, committed) as lease:
        for name in written:
            (lease.path / name).parent.mkdir(parents=True, exist_ok=True)
            (lease.path / name).write_bytes(b"new\0")
        diff = lease.diff()
    assert {name: name.encode() in diff for name in written} == written


def test_diff_is_not_fooled_by_dates(pool: WorktreePool, remote: Remote) -> None:
    """A change that keeps size and date is in the diff, and so are two folders that changed places."""
    commit = remote.commit({"nums": "10\n20\n30\n", "empty": "", "a/file": "in a\n", "b/file": "in b\n"})
    with acquire(pool, commit) as lease:
        for name, content in (("nums", "10\n99\n30\n"), ("link", None)):
            path = lease.path / name
            before = path.lstat()
            if content is None:
                path.unlink()
                path.symlink_to("docs/other.txt")
            else:
                path.write_text(content)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns), follow_symlinks=False)
        os.utime(lease.path / "README", (0, 0))
        patch = lease.diff()
        assert b"-20\n+99\n" in patch
        assert b"+docs/other.txt" in patch
        assert patch.count(b"diff --git") == 2
        (lease.path / "a").rename(lease.path / "c")
        (lease.path / "b").rename(lease.path / "a")
        (lease.path / "c").rename(lease.path / "b")
        assert b"-in a\n+in b\n" in lease.diff()


def test_lease_lost_inside_with(make_pool: MakePool, remote: Remote) -> None:
    """A body's own error is not hidden by the lease having been lost."""
    pool = make_pool()
    with pytest.raises(KeyError), acquire(pool, remote.commits[0]) as lease:
        lease.released = False
        pool.release(lease)
        lease.released = False
        raise KeyError
    with pytest.raises(LeaseLostError):
        lease.renew()


def test_build_pool_from_repository(pool: WorktreePool, base: Path, remote: Remote) -> None:
    """A registered repository gives a working pool, with the bounds its settings name."""
    store = pool._store
    repository = store.repositories.create("other", str(remote.path), settings={"max_worktrees": 1})  # type: ignore[attr-defined]
    other = build_pool_from_repository(store, repository, bare_path=base / "o.bare", worktree_root=base / "o")
    assert other.ensure_bare_repo() == base / "o.bare"
    with acquire(other, "main") as lease:
        assert lease.path.parent == base / "o"
        assert lease.path.name.startswith("wt-")
        assert len(lease.path.name) == 13
        with pytest.raises(CapacityExhaustedError):
            acquire(other, "main", timeout=0)
