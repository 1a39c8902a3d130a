"""A repository or a holder that wants to run something through our git does not get to."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.worktrees import SessionPatch, apply_patch, diff_workspace
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.repository_trust import Trust
from debug_server.worktrees.repository_view import repository_view
from tests.booby_trap import ATTRIBUTES, booby_trap
from tests.worktrees.places import Remote, fingerprint, git, make_remote, open_pool, reference


def test_hostile_remote(base: Path, backend: str) -> None:
    """Hooks and configuration of the remote, and attributes that name its drivers, run nothing on our side."""
    mark = base / "pwned"
    remote = make_remote(base / "remote")
    first = remote.commit({".gitattributes": ATTRIBUTES, "a.txt": "a\n"})
    second = remote.commit({"a.txt": "b\n"})
    booby_trap(remote.path / ".git", mark)
    pool = open_pool(base, remote, backend)
    for commit, text in ((first, "a\n"), (second, "b\n"), (first, "a\n")):
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert (lease.path / "a.txt").read_text() == text
    assert not mark.exists()


def test_hostile_holder(base: Path, remote: Remote, backend: str) -> None:
    """A holder who traps the workspace's own ``.git`` does not make the service run anything."""
    mark = base / "pwned"
    pool = open_pool(base, remote, backend)
    lease = pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None)
    (lease.path / ".gitattributes").write_text(ATTRIBUTES)
    (lease.path / "README").write_text("changed\n")
    booby_trap(lease.path / ".git", mark)
    patch = lease.diff()
    assert b"+changed" in patch
    assert b"+changed" in diff_workspace(lease.path, remote.commits[0])
    (fork,) = lease.fork(1)
    lease.reset(SessionPatch(patch))
    booby_trap(lease.path / ".git", mark)
    lease.reset()
    assert (lease.path / "README").read_text() == "one\n"
    booby_trap(lease.path / ".git", mark)
    apply_patch(lease.path, SessionPatch(patch), patches_dir=base / "patches")
    fork.release()
    lease.release()
    pool.acquire_worktree(commit_sha=remote.commits[1], owner="t", environment_hash=None).release()
    assert not mark.exists()


def test_names_that_are_hard_to_hold(base: Path, backend: str) -> None:
    """Case-colliding, 255-byte, quoted, dashed and non-UTF-8 names arrive as git checks them out."""
    remote = make_remote(base / "remote")
    names = [
        "README",
        "readme",
        "ReadMe",
        "x" * 255,
        "-rf",
        "a b",
        'q"uote',
        "new\nline",
        "tab\there",
        "\udcff\udcfe",
        "é",
    ]
    first = remote.commit({f"d/{name}": f"{number}\n" for number, name in enumerate(names)})
    second = remote.commit({f"d/{names[0]}": "other\n", f"d/{names[3]}": None, f"d/{names[7]}": "changed\n"})
    pool = open_pool(base, remote, backend)
    for number, commit in enumerate((first, second, first)):
        expected = reference(remote.path, commit, base / f"reference{number}")
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert fingerprint(lease.path) == fingerprint(expected)
            for name in names[:3]:
                (lease.path / "d" / name).write_text("again\n")
            assert SessionPatch(lease.diff()).sha256
            (fork,) = lease.fork(1)
            assert fingerprint(fork.path) == fingerprint(lease.path)
            fork.release()


@pytest.mark.parametrize("odd", ["a:b", "a,b", "a\\b", "a b", "a=b"])
def test_odd_folder_names(base: Path, remote: Remote, backend: str, odd: str) -> None:
    """The pool may live in a folder whose name means something to mount(8) or git."""
    place = base / odd
    place.mkdir()
    pool = open_pool(place, remote, backend)
    for commit in remote.commits:
        with pool.acquire_worktree(commit_sha=commit, owner="t", environment_hash=None) as lease:
            assert git("status", "--porcelain", cwd=lease.path) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's repository")
@pytest.mark.parametrize("address", ["{path}", "file://{path}"])
def test_another_user_s_repository(base: Path, address: str) -> None:
    """It is not fetched from, nor one that a file of theirs points to, unless an operator lists owner or path."""
    remote = make_remote(base / "remote")
    remote.commit({"a": "a\n"})
    for path in (remote.path, *remote.path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    url = address.format(path=remote.path)
    with pytest.raises(InvalidInputError, match="trusted_repositories") as caught:
        Mirror(base / "a.bare", url).ensure()
    assert str(remote.path) in str(caught.value)
    for number, listed in enumerate(("65534", str(remote.path), str(base))):
        Mirror(base / f"{number}.bare", url, trust=Trust(listed=(listed,))).ensure()
    (base / "ours").mkdir()
    (base / "ours" / ".git").write_text(f"gitdir: {remote.path}/.git\n")
    with pytest.raises(InvalidInputError, match="belongs to another user"):
        Mirror(base / "b.bare", str(base / "ours")).ensure()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's repository")
@pytest.mark.parametrize("written", ["{theirs}", '"{theirs}"', "../../../theirs/.git/objects", "# here\n{theirs}"])
def test_objects_of_another_user(base: Path, written: str) -> None:
    """A repository that borrows another user's objects, itself or through a third, is refused like one of theirs."""
    theirs = make_remote(base / "theirs")
    theirs.commit({"a": "a\n"})
    for path in (theirs.path, *theirs.path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    theirs_objects = theirs.path / ".git/objects"
    ours, third = make_remote(base / "ours"), make_remote(base / "third")
    ours.commit({"b": "b\n"})
    third.commit({"c": "c\n"})
    (ours.path / ".git/objects/info/alternates").write_text(written.format(theirs=theirs_objects) + "\n")
    (third.path / ".git/objects/info/alternates").write_text(f"{ours.path}/.git/objects\n")
    for name, remote in (("ours", ours), ("third", third)):
        with pytest.raises(InvalidInputError, match="belongs to another user") as caught:
            Mirror(base / f"{name}.bare", str(remote.path)).ensure()
        assert "theirs/.git/objects" in str(caught.value)
        Mirror(base / f"{name}.trusted.bare", str(remote.path), trust=Trust(listed=("65534",))).ensure()


def test_objects_of_a_repository_of_ours(base: Path) -> None:
    """One that borrows from another of the same user, or in a circle, or from nowhere, is fetched as ever."""
    first = make_remote(base / "first")
    commit = first.commit({"a": "a\n"})
    git("clone", "-q", "--shared", str(first.path), str(base / "second"), cwd=base)
    second = base / "second/.git/objects"
    with (second / "info/alternates").open("a") as alternates:
        alternates.write(f"{base}/missing\n{second}\n")
    mirror = Mirror(base / "a.bare", str(base / "second"))
    mirror.ensure()
    assert mirror.resolve("main") == commit


def test_a_repository_that_others_could_replace(base: Path) -> None:
    """Whoever may rename it can put another in its place once its owner has been looked at; not in a sticky folder."""
    shared = base / "shared"
    remote = make_remote(shared / "remote")
    remote.commit({"a": "a\n"})
    (base / "ours").mkdir()
    (base / "ours" / ".git").write_text(f"gitdir: {remote.path}/.git\n")
    shared.chmod(0o777)
    for number, path in enumerate((remote.path, base / "ours")):
        with pytest.raises(InvalidInputError, match="could put another one in its place") as caught:
            Mirror(base / f"{number}.bare", str(path)).ensure()
        assert f"other users may write to {shared} (mode 0777" in str(caught.value)
        assert f'trusted_repositories = ["{path}"]' in str(caught.value)
    Mirror(base / "listed.bare", str(remote.path), trust=Trust(listed=(str(shared),))).ensure()
    shared.chmod(0o1777)
    Mirror(base / "sticky.bare", str(remote.path)).ensure()


def test_a_view_of_a_killed_process_is_swept(base: Path, remote: Remote) -> None:
    """Views lie in a private folder beside the mirror, and go with their process, or when the next one is made."""
    folder = base / "views"
    program = (
        "import os, sys; from pathlib import Path; from debug_server.worktrees.repository_trust import OWN_USER_ONLY;"
        " from debug_server.worktrees.repository_view import"
        " repository_view\nwith repository_view(Path(sys.argv[1]), OWN_USER_ONLY, folder=Path(sys.argv[2])):"
        " os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, remote.path, folder], check=False)
    (left,) = folder.iterdir()
    with repository_view(remote.path, Trust(), folder=folder) as place:
        assert [place.git_dir] == list(folder.iterdir()) and place.git_dir != left
        assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(place.git_dir.stat().st_mode) == 0o700
    assert not list(folder.iterdir())
