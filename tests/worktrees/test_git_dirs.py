"""What another user writes into a ``.git`` file neither fills the memory nor holds anything up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError, WorktreePoolError
from debug_server.worktrees import diff_workspace
from debug_server.worktrees.git_dirs import find_git_dirs
from debug_server.worktrees.repository_trust import Trust
from debug_server.worktrees.repository_view import check_remote_is_there
from tests.worktrees.places import make_remote

OTHER = 65534


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"gitdir: ")
        file.truncate(40 << 30)


def _link(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_text("gitdir: /nowhere\n")
    path.symlink_to(elsewhere)


HOSTILE: list[Callable[[Path], None]] = [_sparse, os.mkfifo, _link]


@pytest.mark.parametrize("make", HOSTILE)
@pytest.mark.parametrize("name", [".git", "git/commondir"])
def test_a_file_that_is_no_pointer(base: Path, name: str, make: Callable[[Path], None]) -> None:
    """A file of 40 GiB, a pipe that nobody writes to and a link are refused by name, before anything is read."""
    place = base / "repository"
    (place / "git").mkdir(parents=True)
    if name != ".git":
        (place / ".git").write_text("gitdir: git\n")
    make(place / name)
    with pytest.raises(InvalidInputError, match=rf"{name} cannot be read"):
        find_git_dirs(place)
    with pytest.raises(WorktreePoolError, match=rf"{name} cannot be read"):
        diff_workspace(place, "0" * 40)


def test_a_pipe_that_comes_after_the_look(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of the folder puts it there between the look at the file and the reading of it."""
    pointer = base / ".git"
    pointer.write_text("gitdir: git\n")
    look = Path.is_dir

    def exchanged(path: Path) -> bool:
        found = look(path)
        if path == pointer:
            pointer.unlink()
            os.mkfifo(pointer)
        return found

    monkeypatch.setattr(Path, "is_dir", exchanged)
    with pytest.raises(InvalidInputError, match="not a regular file"):
        find_git_dirs(base)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("make", HOSTILE)
def test_whose_it_is_comes_first(base: Path, make: Callable[[Path], None]) -> None:
    """The folder is ours and its ``.git`` another user's: that is the answer, not what is in it."""
    make(base / ".git")
    os.lchown(base / ".git", OTHER, OTHER)
    for check in (Trust().check, lambda place: check_remote_is_there(str(place), Trust())):
        with pytest.raises(InvalidInputError, match="belongs to another user"):
            check(base)


def test_borrowed_objects_are_named_in_a_small_file(base: Path) -> None:
    """``objects/info/alternates`` is bounded likewise."""
    remote = make_remote(base / "remote")
    remote.commit({"a": "a\n"})
    _sparse(remote.path / ".git/objects/info/alternates")
    with pytest.raises(InvalidInputError, match="alternates cannot be read: it has more than"):
        Trust().check(remote.path)
