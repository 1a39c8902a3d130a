"""Opens files and folders that only this user or root can have created.

Used for every file and folder with settings, programs or data. A path is trusted when

- it, every folder above it and every link on the way belong to this user or root, or to the owner of a path that the
  operator named (``owners_of``), and
- nobody else may write to it or to a folder above it. A sticky folder such as ``/tmp`` may be above it: there, only
  the owner of an entry can replace it. Group write is accepted in two
  cases: the group has no other members (a user's private group, usual with umask 002), or
  root owns a folder above the path (``/var/log``) and the group has only system accounts.

Each entry is opened without following links and checked by its descriptor, so nothing can be replaced between check and
use.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from debug_server.disk.folders import Folder
from debug_server.errors import ConfigurationError

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40  # as in the kernel
_FIRST_USER_UID = 1000  # UID_MIN of login.defs: lower ones are system accounts
_UNKNOWN_UID = 1 << 32  # for a group member without a uid


class _Distrust(Exception):
    """Why a path is not trusted, and what to do about it."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


def trusted_users() -> frozenset[int]:
    """The users whose files are trusted: this user and root."""
    return frozenset({os.geteuid(), 0})


def owners_of(named: Path) -> frozenset[int]:
    """This user, root, and the owner of a path that the operator named: naming a file means trusting its owner."""
    try:
        return trusted_users() | {named.stat().st_uid}
    except OSError:
        return trusted_users()


def read_trusted(path: Path, trusted_uids: Collection[int] | None = None) -> bytes:
    """A file's bytes; ConfigurationError when it is not trusted, OSError when it cannot be read."""
    if path.parent in (Path("/dev/fd"), Path("/proc/self/fd")) or path == Path("/dev/stdin"):
        return path.read_bytes()  # a descriptor that our parent opened has no folder to check
    descriptor = _open(path, trusted_uids)
    try:
        return Path(f"/proc/self/fd/{descriptor}").read_bytes()
    finally:
        os.close(descriptor)


def check_trusted(path: Path, trusted_uids: Collection[int] | None = None) -> None:
    """ConfigurationError when a file or folder is not trusted, OSError when it cannot be reached."""
    os.close(_open(path, trusted_uids))


@contextmanager
def open_trusted(path: Path, trusted_uids: Collection[int] | None = None) -> Iterator[Folder]:
    """The folder itself, as it was checked: what replaces it later has no effect; errors as of ``check_trusted``."""
    descriptor = _open(path, trusted_uids)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)


def why_distrusted(path: Path, trusted_uids: Collection[int] | None = None) -> str | None:
    """The reason why a path is not trusted, or None."""
    try:
        os.close(_walk(path, trusted_users() if trusted_uids is None else trusted_uids))
    except _Distrust as error:
        return str(error)
    except OSError as error:
        return f"it cannot be opened: {error.strerror}"
    return None


def why_replaceable(
    path: Path, trusted_uids: Collection[int] | None = None, *, may_be_missing: bool = False
) -> str | None:
    """Why others could put something else in the path's place; its own mode does not matter. None if they cannot.

    With ``may_be_missing`` only the existing folders above it are checked. If one is sticky, others could still create
    the path first: check it again once it exists.
    """
    try:
        os.close(_walk(path, trusted_users() if trusted_uids is None else trusted_uids, last=False))
    except _Distrust as error:
        return str(error)
    except FileNotFoundError as error:
        return None if may_be_missing else f"it cannot be opened: {error.strerror}"
    except OSError as error:
        return f"it cannot be opened: {error.strerror}"
    return None


def is_shared(folder: Path) -> bool:
    """Whether others than this user and root can put entries into a folder; a sticky one is no exception."""
    try:
        descriptor = os.open(folder, _STEP)
    except OSError:
        return True
    try:
        found, trusted_uids = os.fstat(descriptor), trusted_users()
        known = found.st_uid in trusted_uids or found.st_uid == _unmapped_user()
        return not known or _is_shared(descriptor, found, trusted_uids, above=True)
    finally:
        os.close(descriptor)


def _open(path: Path, trusted_uids: Collection[int] | None) -> int:
    try:
        return _walk(path, trusted_users() if trusted_uids is None else trusted_uids)
    except _Distrust as error:
        raise ConfigurationError(f"{path} is not used: {error}; {error.advice}") from error


def _walk(path: Path, trusted_uids: Collection[int], *, last: bool = True) -> int:
    """A descriptor (``O_PATH``) of what the path leads to, opened entry by entry.

    If ``last`` is false, only the folders above it are checked for write access by others, not the entry itself.
    """
    whole = path.absolute()
    left = list(reversed(whole.parts))  # the first is "/", which is opened without a folder
    here, where, shared, links = -1, Path("/"), False, 0
    try:
        while left:
            name = left.pop()
            below = os.open(name, _STEP, dir_fd=None if here < 0 else here)
            place = Path("/") if name == "/" else where.parent if name == ".." else where / name
            try:
                found = os.fstat(below)
                what = "it" if place == whole else str(place)
                _check_owner(found, what, trusted_uids, above=bool(left) and not shared)
                if stat.S_ISLNK(found.st_mode):  # its mode means nothing
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                    left += reversed(PurePosixPath(os.readlink("", dir_fd=below)).parts)
                    continue
                shared = _is_shared(below, found, trusted_uids, above=bool(left))
                if shared and (left or last) and not (left and found.st_mode & stat.S_ISVTX):
                    raise _writable(found, what, place)
                here, below, where = below, here, place
            finally:
                if below >= 0:
                    os.close(below)
    except BaseException:
        if here >= 0:
            os.close(here)
        raise
    return here


def _check_owner(found: os.stat_result, what: str, trusted_uids: Collection[int], *, above: bool) -> None:
    """``above``: it is a folder above the path, in one that others may not write to."""
    if found.st_uid in trusted_uids or (above and found.st_uid == _unmapped_user()):
        return
    raise _Distrust(
        f"{what} belongs to another user (uid {found.st_uid})", "use a path of your own, or run as that user"
    )


def _is_shared(descriptor: int, found: os.stat_result, trusted_uids: Collection[int], *, above: bool) -> bool:
    """Whether users other than the trusted ones may write to it."""
    if not found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
        return False
    if found.st_mode & stat.S_IWOTH or _has_acl(descriptor):
        return True
    members = _members(found.st_gid)
    if above and found.st_uid == 0 and all(user < _FIRST_USER_UID for user in members):
        return False
    return not members <= set(trusted_uids) or (not members and found.st_gid != os.getegid())


def _writable(found: os.stat_result, what: str, place: Path) -> _Distrust:
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}, group {found.st_gid}"
    advice = f"make sure that everything in it is yours, then: chmod go-w {shlex.quote(str(place))}"
    if found.st_mode & stat.S_ISVTX or (found.st_uid == 0 and os.geteuid() != 0):
        advice = "use a folder of your own"  # this one is meant for everybody
    return _Distrust(f"other users may write to {what} ({mode})", advice)


def _has_acl(descriptor: int) -> bool:
    """With an access control list, the group bits are the mask for other users."""
    try:
        os.getxattr(f"/proc/self/fd/{descriptor}", "system.posix_acl_access")
    except OSError:
        return False
    return True


def _members(group: int) -> set[int]:
    """The users in a group; empty for a group without an entry, as in some containers."""
    users = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group}
    with suppress(KeyError):
        users |= {_uid_of(name) for name in grp.getgrgid(group).gr_mem}
    return users


def _uid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return _UNKNOWN_UID


@cache
def _unmapped_user() -> int | None:
    """The uid that the kernel reports for owners without a uid in this user namespace; None if all have one.

    In a user namespace ``/`` and ``/home`` may belong to the machine's root, which is not mapped there.
    """
    try:
        if Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]:
            return None
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return None
