"""Submodules on request, and patches of workspaces with repositories inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.worktrees import SessionPatch
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.submodules import Submodules, resolve_address
from tests.worktrees.places import Remote, fingerprint, git, make_remote, open_pool

ALLOW = ("-c", "protocol.file.allow=always")


@pytest.fixture
def outer(base: Path) -> Remote:
    """A repository with a submodule that has one itself; the addresses are relative."""
    inmost = make_remote(base / "inmost")
    inmost.commit({"deep.txt": "deep\n"})
    inner = make_remote(base / "inner")
    inner.commit({"code.py": "one\n"})
    git(*ALLOW, "submodule", "--quiet", "add", "../inmost", "sub/inmost", cwd=inner.path)
    inner.commit({"code.py": "two\n"})
    outer = make_remote(base / "outer")
    outer.commit({"README": "outer\n"})
    git(*ALLOW, "submodule", "--quiet", "add", "../inner", "libs/inner", cwd=outer.path)
    outer.commit({})
    return outer


def plain_checkout(base: Path, outer: Remote, name: str) -> Path:
    """What git itself makes of it."""
    git(*ALLOW, "clone", "-q", "--recurse-submodules", str(outer.path), str(base / name), cwd=base)
    return base / name


def contents(path: Path) -> dict[str, tuple[str, str]]:
    """The fingerprint without any gitdir or link to one."""
    return {name: entry for name, entry in fingerprint(path).items() if ".git" not in name.split("/")}


def test_a_workspace_has_its_submodules(base: Path, outer: Remote, backend: str) -> None:
    """With submodules every file is as `git clone --recurse-submodules` has it, and git is content in each; a later
    commit has its own; without the setting the folder is empty."""
    pool = open_pool(base, outer, backend, submodules=True)
    first = outer.commits[-1]
    expected = contents(plain_checkout(base, outer, "plain"))
    with pool.acquire_worktree(commit_sha=first, owner="t", environment_hash=None) as lease:
        assert contents(lease.path) == expected
        assert git("status", "--porcelain", cwd=lease.path) == ""
        assert git("status", "--porcelain", cwd=lease.path / "libs/inner") == ""
        (lease.path / "libs/inner/code.py").write_text("dirty\n")
        (lease.path / "libs/inner/left").write_text("left\n")
    git("checkout", "-q", "HEAD~1", cwd=outer.path / "libs/inner")
    second = outer.commit({"README": "with the older one\n"})
    for commit, code in ((second, "one\n"), (first, "two\n")):
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert (lease.path / "libs/inner/code.py").read_text() == code
            assert not (lease.path / "libs/inner/left").exists()
            assert (lease.path / "libs/inner/sub/inmost/deep.txt").exists() == (code == "two\n")
    without = open_pool(base, outer, backend)
    with without.acquire_worktree(commit_sha=first, owner="t", environment_hash=None) as lease:
        assert list((lease.path / "libs/inner").iterdir()) == []


def test_the_next_holder_finds_an_unasked_submodule_empty(base: Path, outer: Remote, backend: str) -> None:
    """What a holder put into the empty folder of a submodule does not reach the next one."""
    pool = open_pool(base, outer, backend, max_worktrees=1)
    with pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None) as lease:
        git(*ALLOW, "clone", "-q", str(base / "inner"), str(lease.path / "libs/inner"), cwd=base)
    with pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None) as lease:
        assert list((lease.path / "libs/inner").iterdir()) == []
        assert git("status", "--porcelain", cwd=lease.path) == ""


def test_a_remote_repository_may_not_name_this_disk(base: Path, outer: Remote) -> None:
    """A submodule at a local path is refused when its repository comes from elsewhere."""
    mirror = Mirror(base / "x.bare", str(outer.path))
    mirror.ensure()
    mirror.remote_url = "https://host.invalid/outer.git"
    git("config", "-f", ".gitmodules", "submodule.libs/inner.url", str(base / "inner"), cwd=outer.path)
    commit = outer.commit({})
    mirror.fetch()
    with pytest.raises(InvalidInputError, match="on this machine"):
        Submodules(mirror, Mirror).of(commit)


def test_relative_addresses() -> None:
    """They start at the repository's own address, whatever its form."""
    assert resolve_address("https://host/a/b.git", "../c.git") == "https://host/a/c.git"
    assert resolve_address("git@host:a/b.git", "../c.git") == "git@host:a/c.git"
    assert resolve_address("/srv/a/b", "./c") == "/srv/a/b/c"
    assert resolve_address("file:///srv/b", "../c") == "/srv/c"
    assert resolve_address("https://host/b", "../../../c") == "https://host/c"
    assert resolve_address("https://host/b", "ssh://git@other/c") == "ssh://git@other/c"


def test_diff_sees_submodules_and_repositories_inside(base: Path, outer: Remote, backend: str) -> None:
    """Changes in submodules, in a clone made inside, in a repository without a commit and under a tracked folder that
    became one: all in a patch that turns a fresh workspace into the same files."""
    outer.commit({"pkg/a.py": "a\n", "pkg/b.py": "b\n"})
    pool = open_pool(base, outer, backend, submodules=True)
    lease = pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None)
    root = lease.path
    (root / "README").write_text("changed\n")
    (root / "libs/inner/code.py").write_text("three\n")
    (root / "libs/inner/sub/inmost/new.txt").write_text("new\n")
    (root / "libs/inner/sub/inmost/deep.txt").unlink()
    git(*ALLOW, "clone", "-q", str(base / "inmost"), str(root / "vendored/copy"), cwd=base)
    (root / "scratch").mkdir()
    git("init", "-q", cwd=root / "scratch")
    (root / "scratch/note").write_text("note\n")
    git("init", "-q", cwd=root / "pkg")
    (root / "pkg/b.py").write_text("B\n")
    patch = SessionPatch(lease.diff())
    with pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None) as fresh:
        fresh.reset(patch)
        assert contents(fresh.path) == contents(root)
        assert fresh.diff().count(b"diff --git") == patch.data.count(b"diff --git")
    assert b"Subproject" not in patch.data
    lease.release()


def test_diff_of_an_unasked_submodule(base: Path, outer: Remote, backend: str) -> None:
    """Files put into the empty folder of a submodule are new files; a folder that is left alone is no change."""
    pool = open_pool(base, outer, backend)
    with pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None) as lease:
        assert lease.diff() == b""
        (lease.path / "libs/inner/stub.py").write_text("stub\n")
        patch = SessionPatch(lease.diff())
        assert b"+++ b/libs/inner/stub.py" in patch.data
        lease.reset(patch)
        assert (lease.path / "libs/inner/stub.py").read_text() == "stub\n"
