"""Finds the git directories of a repository: that of its working tree, and the one that all its trees share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from debug_server.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDirs:
    """Where a repository keeps what git reads."""

    git_dir: Path  # of the working tree: its HEAD
    common: Path  # shared by all working trees


def common_dir(repository: Path) -> Path:
    """The git directory that all trees of a repository share; InvalidInputError when it is no repository."""
    return find_git_dirs(repository).common


def find_git_dirs(repository: Path) -> GitDirs:
    """InvalidInputError when ``repository`` is not the root of one."""
    try:
        found = repository / ".git"
        if found.is_file():
            found = (repository / found.read_text(errors="replace").removeprefix("gitdir:").strip()).resolve()
        elif not found.is_dir():
            found = repository
        common, pointer = found, found / "commondir"
        if pointer.is_file():
            common = (found / pointer.read_text(errors="replace").strip()).resolve()
        if not (common / "HEAD").is_file() or not (common / "objects").is_dir():
            raise InvalidInputError(f"{repository} is not the root of a git repository")
    except OSError as error:
        raise InvalidInputError(f"{repository} cannot be read: {error.strerror}") from error
    return GitDirs(git_dir=found.resolve(), common=common.resolve())
