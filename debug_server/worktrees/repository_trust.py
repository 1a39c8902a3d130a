"""Whose repositories on this machine may be used: those of the server's own user, and those that an operator lists.

git runs programs that a repository's configuration names, so the owner of every part that git reads is checked.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import is_shared, read_bounded, why_replaceable
from debug_server.errors import InvalidInputError
from debug_server.worktrees.git_dirs import find_git_dirs
from debug_server.worktrees.patch_text import unquote_name

_CHECKED_PARTS = ("HEAD", "config", "objects", "refs", "objects/info/alternates")
_MAX_ALTERNATES = 32
_MAX_ALTERNATES_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The owners and paths that are trusted."""

    listed: tuple[str, ...] = ()  # absolute paths, user names, user ids

    def check(self, repository: Path) -> None:
        """InvalidInputError unless every part of the repository belongs to a trusted user or path."""
        self._check_parts(repository, _parts(repository))
        self._check_above(repository, _places(repository))

    def _check_above(self, repository: Path, places: Iterable[Path]) -> None:
        """InvalidInputError if another user could replace one of ``places`` after its owner was checked."""
        owners = {0} | self._owners()
        for place in places:
            if not self._is_listed(place) and (reason := why_replaceable(place, owners)) is not None:
                raise InvalidInputError(self._replaceable(repository, place, reason))

    def _check_parts(self, repository: Path, parts: Iterable[Path]) -> None:
        owners = self._owners()
        for part in parts:
            found = {part.lstat().st_uid, part.stat().st_uid}
            if not found <= owners and not self._is_listed(part):
                raise InvalidInputError(self._refusal(repository, part, min(found - owners)))

    def _owners(self) -> set[int]:
        return _own_users() | {uid for item in self.listed if (uid := _uid(item)) is not None}

    def _is_listed(self, part: Path) -> bool:
        real = Path(os.path.realpath(part))
        return any(real.is_relative_to(os.path.realpath(item)) for item in self.listed if item.startswith("/"))

    def check_folder(self, folder: Path) -> None:
        """The same check for a folder that need not be a repository."""
        if (folder / ".git").exists() or (folder / "objects").is_dir():
            self.check(folder)
        else:
            self._check_parts(folder, [folder])
            self._check_above(folder, [folder])

    def check_place(self, path: Path) -> None:
        """InvalidInputError if others could use a directory that is or will be at ``path``, or put another one there.

        Check it again once it is made: in a sticky folder, others may make it first.
        """
        owners = {0} | self._owners()
        reason = None if self._is_listed(path) else why_replaceable(path, owners, may_be_missing=True)
        if reason is not None:
            raise InvalidInputError(
                f"{path} is not used, because other users could put something else in its place: {reason}. Use a path "
                "whose parent folders are yours, or remove the write permission of others (chmod go-w)"
            )
        if not os.path.lexists(path):
            return
        if (owner := path.lstat().st_uid) not in _own_users():
            raise InvalidInputError(f"{path} belongs to {_name(owner)}, not to {_name(os.geteuid())}: use another path")
        if path.is_dir() and is_shared(path):
            raise InvalidInputError(f"other users may write to {path}: remove their permission (chmod go-w)")

    def _refusal(self, repository: Path, part: Path, uid: int) -> str:
        return (
            f"repository {repository} belongs to another user: {part} is owned by {_name(uid)} and this server runs as "
            f"{_name(os.geteuid())}. {self._advice(repository)}"
        )

    def _replaceable(self, repository: Path, place: Path, reason: str) -> str:
        return (
            f"repository {repository} is not used, because other users could put another one in its place: above "
            f"{place}, {reason}. Remove their write permission (chmod go-w), or: {self._advice(repository)}"
        )

    def _advice(self, repository: Path) -> str:
        line = ", ".join(f'"{item}"' for item in (*self.listed, os.path.realpath(repository)))
        return f"An operator who trusts it adds to [workspaces] in config/runner.toml: trusted_repositories = [{line}]"


OWN_USER_ONLY = Trust()


def _parts(repository: Path) -> Iterator[Path]:
    """Every file and folder that decides what git reads and runs; a bundle is one file."""
    yield repository
    if repository.is_file():
        return
    if (entry := repository / ".git").exists():  # judged before it is read
        yield entry
    dirs = find_git_dirs(repository)
    candidates = (dirs.git_dir, dirs.common, *(dirs.common / name for name in _CHECKED_PARTS))
    yield from dict.fromkeys(path for path in candidates if path.exists())
    yield from _alternate_folders(dirs.common / "objects")


def _places(repository: Path) -> Iterator[Path]:
    """The folders and files that git opens by path after the check."""
    yield repository
    if repository.is_file():
        return
    dirs = find_git_dirs(repository)
    yield from dict.fromkeys((dirs.git_dir, dirs.common))
    yield from (path for path in _alternate_folders(dirs.common / "objects") if path.is_dir())


def _alternate_folders(objects: Path) -> Iterator[Path]:
    """Object folders that a repository borrows from (``git clone --shared``), and the files that name more."""
    waiting, seen = [objects], {os.path.realpath(objects)}
    while waiting:
        folder = waiting.pop()
        for line in _alternates(folder):
            borrowed = folder / line
            if not borrowed.is_dir() or os.path.realpath(borrowed) in seen:  # git ignores a missing one
                continue
            seen.add(os.path.realpath(borrowed))
            if len(seen) > _MAX_ALTERNATES:
                raise InvalidInputError(f"{objects} borrows from more than {_MAX_ALTERNATES} other object folders")
            yield borrowed
            if (more := borrowed / "info" / "alternates").exists():
                yield more
            waiting.append(borrowed)


def _alternates(objects: Path) -> list[str]:
    try:
        text = read_bounded(objects / "info" / "alternates", _MAX_ALTERNATES_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise InvalidInputError(f"{objects}/info/alternates cannot be read: {error.strerror}") from error
    return [unquote_name(line) for line in text.split(b"\n") if line and not line.startswith(b"#")]


def _own_users() -> set[int]:
    """As in git: our user and, for root under sudo, the user who called sudo."""
    found = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        found.add(int(os.environ["SUDO_UID"]))
    return found


def _uid(item: str) -> int | None:
    if item.isdigit():
        return int(item)
    try:
        return pwd.getpwnam(item).pw_uid
    except KeyError:
        return None


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"user {uid}"
