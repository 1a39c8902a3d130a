"""Removes folders that others can write to, at any depth: never through a link, never across a mount.

    unmount everything at and below -> walk by descriptors, one open at a time -> return what could not be removed

A name is opened relative to its open folder, without following a link, and only on the same mount (a bind mount of the
same file system has the same device number, so the kernel compares the mount). A mount that appears meanwhile is
unmounted in the next round. Missing permissions are added and ``chattr`` attributes cleared where necessary.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.disk import kernel
from debug_server.disk.folders import Folder
from debug_server.disk.mounts import detach_in

_ROUNDS = 5  # limit in case a process keeps writing or mounting there
_MAX_REPORTED = 10  # leftovers that are reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that could not be removed."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def remove_tree(path: Path, *, no_links: bool = False) -> list[Leftover]:
    """Remove a folder with its contents, or another file at ``path``; returns the first few leftovers.

    A missing path is fine; other processes may remove it at the same time. With ``no_links`` no part of ``path`` may be
    a link.
    """
    return _in_folder_of(path, no_links=no_links, act=lambda folder: _remove(folder, path, keep_top=False))


def remove_entry(folder: Folder, name: str) -> list[Leftover]:
    """Like ``remove_tree``, for an entry of an open folder, even if that folder was moved."""
    path = Path(os.readlink(folder.path), name)  # noqa: PTH115  the text as the kernel gives it
    return _remove(folder.descriptor, path, keep_top=False)


def empty_folder(path: Path, *, no_links: bool = False) -> list[Leftover]:
    """Remove the contents of a folder; returns the first few leftovers."""
    return _in_folder_of(path, no_links=no_links, act=lambda folder: _remove(folder, path, keep_top=True))


def release_entry(path: Path) -> list[Leftover]:
    """Prepare an entry for a rename: unmount everything at and below it, clear attributes that forbid it."""

    def act(folder: int) -> list[Leftover]:
        mounted = detach_in(folder, path.name)
        with suppress(OSError):
            _clear(folder, path.name)
        return [
            Leftover(path=target, reason="it is mounted and cannot be unmounted") for target in mounted[:_MAX_REPORTED]
        ]

    return _in_folder_of(path, no_links=False, act=act)


def _in_folder_of(path: Path, *, no_links: bool, act: Callable[[int], list[Leftover]]) -> list[Leftover]:
    parent = os.path.abspath(path.parent)  # noqa: PTH100  resolve() would follow links
    try:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        folder = kernel.open_real_folder(parent) if no_links else os.open(parent, flags)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return [Leftover(path=path, reason=_reason(error))]
    try:
        return act(folder)
    finally:
        os.close(folder)


def _remove(folder: int, path: Path, *, keep_top: bool) -> list[Leftover]:
    walk = _Walk(path, folder, keep_top=keep_top)
    for _ in range(_ROUNDS):
        detach_in(folder, path.name)
        walk.failures.clear()
        walk.run()
        if not any(item.again for item in walk.failures):
            break
    return [Leftover(path=item.path, reason=item.reason) for item in walk.failures[:_MAX_REPORTED]]


@dataclass(slots=True, kw_only=True)
class _Level:
    """A folder above the open one."""

    name: str
    identity: tuple[int, int]
    folders: list[str]  # still to be removed
    failed: int = 0  # entries that could not be removed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    path: Path
    reason: str
    again: bool  # whether another round may help


@dataclass(slots=True)
class _Walk:
    """One removal: at most two descriptors are open, however deep the tree is."""

    path: Path
    folder: int  # the one that holds ``path``
    keep_top: bool
    failures: list[_Failure] = field(default_factory=list)
    current: int = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.folder

    def run(self) -> None:
        """Remove what can be removed; ``failures`` has the rest."""
        try:
            self.current = self._open(self.folder, self.path.name)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and not self.keep_top:
                self._unlink(self.path.name, [])
            else:
                self._report_failure([], self.path.name, error)
            return
        levels = [_Level(name=self.path.name, identity=_identity(self.current), folders=[])]
        try:
            self._remove_files(levels)
            while levels:
                if levels[-1].folders:
                    self._descend(levels)
                else:
                    self._ascend(levels)
        except _MovedError:  # folders are being renamed: start again at the top
            self.failures.append(_Failure(path=self.path, reason="folders in it are being moved", again=True))
        finally:
            self._move(self.folder)

    def _descend(self, levels: list[_Level]) -> None:
        name = levels[-1].folders.pop()
        try:
            below = self._open(self.current, name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # no longer a folder
                self._unlink(name, levels)
            elif error.errno != errno.ENOENT:
                self._report_failure(levels, name, error)
            return
        self._move(below)
        levels.append(_Level(name=name, identity=_identity(below), folders=[]))
        self._remove_files(levels)

    def _ascend(self, levels: list[_Level]) -> None:
        """Go back to the folder above, and remove the one that is done."""
        level = levels.pop()
        self._move(self._above(levels) if levels else self.folder)
        if level.failed:
            if levels:
                levels[-1].failed += 1
        elif levels or not self.keep_top:
            self._remove_protected(level.name, levels, lambda: os.rmdir(level.name, dir_fd=self.current))

    def _above(self, levels: list[_Level]) -> int:
        try:
            above = kernel.open_same_mount(self.current, "..")
        except OSError as error:
            raise _MovedError from error
        if _identity(above) != levels[-1].identity:
            os.close(above)
            raise _MovedError
        return above

    def _move(self, descriptor: int) -> None:
        before, self.current = self.current, descriptor
        if before not in (self.folder, descriptor):  # ``folder`` belongs to the caller
            os.close(before)

    def _open(self, folder: int, name: str) -> int:
        """A folder's descriptor; missing permissions of its owner are added if possible."""
        try:
            descriptor = kernel.open_same_mount(folder, name)
        except PermissionError:
            entry = kernel.open_entry(folder, name)
            try:
                os.chmod(kernel.path_of(entry), 0o700)  # noqa: PTH101  the opened file, even if it was renamed
            finally:
                os.close(entry)
            descriptor = kernel.open_same_mount(folder, name)
        found = os.fstat(descriptor)
        if stat.S_IMODE(found.st_mode) & 0o700 != 0o700:
            with suppress(OSError):  # of another user: a later failure is reported
                os.fchmod(descriptor, 0o700)
        return descriptor

    def _remove_files(self, levels: list[_Level]) -> None:
        """Remove the files and note the folders."""
        try:
            with os.scandir(self.current) as found:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except OSError as error:
            self._report_failure(levels[:-1], levels[-1].name, error)
            levels[-1].failed += 1
            return
        for name, is_folder in entries:
            if is_folder:
                levels[-1].folders.append(name)
            else:
                self._unlink(name, levels)

    def _unlink(self, name: str, levels: list[_Level]) -> None:
        self._remove_protected(name, levels, lambda: os.unlink(name, dir_fd=self.current))

    def _remove_protected(self, name: str, levels: list[_Level], act: Callable[[], None]) -> None:
        """Remove an entry of the open folder, a second time without the attributes that forbid it."""
        try:
            try:
                act()
            except PermissionError:
                _clear(self.current, name)
                if levels:  # never the folder above the whole tree
                    kernel.clear_attributes(self.current)
                act()
        except FileNotFoundError:
            return
        except OSError as error:
            self._report_failure(levels, name, error)

    def _report_failure(self, levels: list[_Level], name: str, error: OSError) -> None:
        if levels:
            levels[-1].failed += 1
            names = [level.name for level in levels]
            place = Path(
                self.path.parent, *(names if len(names) <= _MAX_REPORTED else [*names[:_MAX_REPORTED], "…"]), name
            )
        else:
            place = self.path
        again = error.errno in (errno.EXDEV, errno.EBUSY, errno.ENOTEMPTY, errno.EISDIR)
        self.failures.append(_Failure(path=place, reason=_reason(error), again=again))


class _MovedError(Exception):
    """A folder is no longer where it was opened."""


def _clear(folder: int, name: str) -> None:
    """Clear the attributes of an entry that forbid removing or renaming it."""
    entry = kernel.open_entry(folder, name)
    try:
        kernel.clear_attributes(entry)
    finally:
        os.close(entry)


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _reason(error: OSError) -> str:
    if error.errno in (errno.EXDEV, errno.EBUSY):
        return "it is mounted and cannot be unmounted, or in use by the kernel"
    return error.strerror or str(error)
