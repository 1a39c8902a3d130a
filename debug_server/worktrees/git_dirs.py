"""Finds the git directories of a repository: that of its working tree, and the one that all its trees share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import read_bounded
from debug_server.errors import InvalidInputError

_MAX_POINTER = 64 << 10  # bytes of a file that holds one path


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDirs:
    """Where a repository keeps what git reads."""

    git_dir: Path  # of the working tree: its HEAD
    common: Path  # shared by all working trees


def common_dir(repository: Path) -> Path:
    """The git directory that all trees of a repository share; InvalidInputError when it is no repository."""
    return find_git_dirs(repository).common


def find_git_dirs(repository: Path) -> GitDirs:
    """InvalidInputError when ``repository`` is not the root of one.

    It may be another user's, and change meanwhile: reads are bounded, and never block on a pipe or follow a link.
    """
    try:
        found = repository / ".git"
        if not found.exists():
            found = repository
        elif not found.is_dir():
            found = pointed_dir(found)
        common = common_of(found)
        if not (common / "HEAD").is_file() or not (common / "objects").is_dir():
            raise InvalidInputError(f"{repository} is not the root of a git repository")
    except OSError as error:
        raise InvalidInputError(f"{error.filename or repository} cannot be read: {error.strerror}") from error
    return GitDirs(git_dir=found.resolve(), common=common.resolve())


def pointed_dir(pointer: Path) -> Path:
    """The git directory that a ``.git`` file names; OSError when it cannot be read."""
    return (pointer.parent / _text(pointer).removeprefix("gitdir:").strip()).resolve()


def common_of(git_dir: Path) -> Path:
    """The git directory that a working tree's own one shares with others: the same, unless it names another."""
    pointer = git_dir / "commondir"
    return (git_dir / _text(pointer).strip()).resolve() if pointer.exists() else git_dir


def _text(pointer: Path) -> str:
    return read_bounded(pointer, _MAX_POINTER).decode(errors="surrogateescape")
