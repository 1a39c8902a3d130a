"""The folders of a checkout, entry by entry: what git does not see (pipes, devices, rights of folders) counts too.

Written without recursion: a command can leave more folders inside each other than Python calls functions.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import open_folder, remove_tree
from debug_server.worktrees.copying import copy_below
from debug_server.worktrees.index_dates import tracked, untouched

Throw = Callable[[Path], None]


def strip(tree: Path, index: Path, like: Path, throw: Throw) -> None:
    """Remove whatever the index does not name, and make each folder what ``like``, a new one, is.

    A file that it names stays as it is. OSError where something resists, or where a folder has become a link meanwhile:
    each folder is held open, so nothing outside of the tree is changed or removed.
    """
    files = tracked(index)
    folders = _folders_of(files)
    usual = _Rights.of(like)
    with open_folder(tree) as root:
        waiting = [b""]
        while waiting:
            folder = waiting.pop()
            with root.below(os.fsdecode(folder) or ".") as opened:
                usual.give(opened.path)
                for name, entry in _entries(opened.path, prefix=folder):
                    if entry.is_dir(follow_symlinks=False) and name in folders:
                        waiting.append(name)
                    elif name not in files or not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                        _remove(_at(opened.path, entry.name), throw)


def copy_changes(source: Path, index: Path, target: Path, throw: Throw) -> None:
    """Make ``target``, a clean checkout, what ``source``, one of the same commit with that index, is now."""
    files = untouched(source, index)
    folders = _folders_of(files)
    usual = _Rights.of(target)
    common = [b""]
    differing = []
    for folder in common:  # grows
        for name, entry in _entries(_at(source, folder), prefix=folder):
            if entry.is_dir(follow_symlinks=False) and name in folders:
                common.append(name)
            elif not files.get(name, False):
                differing.append(name)
    kept = set(common)
    touched = [name for name, same in files.items() if not same]
    for name in (b".git", *touched, *(folders - kept)):
        if _parent(name) in kept:  # else it goes with its folder
            _remove(_at(target, name), throw)
    copy_below(sorted(differing), source, target)
    for folder in reversed(common):  # last, and the inner ones first: one may be closed to writers
        if (rights := _Rights.of(_at(source, folder))) != usual:
            rights.give(_at(target, folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rights:
    """What a folder has beside its entries."""

    mode: int
    owner: tuple[int, int]
    attributes: dict[str, bytes]  # access lists are among them

    @classmethod
    def of(cls, folder: Path) -> _Rights:
        found = folder.stat()
        owner = (found.st_uid, found.st_gid)
        return cls(mode=stat.S_IMODE(found.st_mode), owner=owner, attributes=_attributes(folder))

    def give(self, folder: Path) -> None:
        """Give them to another folder."""
        found = folder.stat()
        if self.owner != (found.st_uid, found.st_gid):
            os.chown(folder, *self.owner)
            found = folder.stat()
        if self.mode != stat.S_IMODE(found.st_mode):
            folder.chmod(self.mode)
        present = _attributes(folder)
        if present == self.attributes:
            return
        for name in present.keys() - self.attributes.keys():
            os.removexattr(folder, name)
        for name, value in self.attributes.items():
            os.setxattr(folder, name, value)
        folder.chmod(self.mode)  # which an access list changes too


def _attributes(path: Path) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # the file system has none
            return {}
        raise


def _entries(folder: Path, *, prefix: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """What is in a folder, each with its name below the root; ``prefix`` is the folder's own."""
    before = prefix + b"/" if prefix else b""
    with os.scandir(os.fsencode(folder)) as entries:
        for entry in entries:
            yield before + entry.name, entry


def _at(root: Path, name: bytes) -> Path:
    return root / os.fsdecode(name)


def _parent(name: bytes) -> bytes:
    return name.rpartition(b"/")[0]


def _folders_of(names: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for name in names:
        folder = _parent(name)
        while folder and folder not in found:
            found.add(folder)
            folder = _parent(folder)
    return found


def _remove(path: Path, throw: Throw) -> None:
    """Whatever it is; a missing one is fine."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        throw(path)
    except OSError:  # a folder that may not be written cannot be moved either
        if left := remove_tree(path):
            raise OSError(errno.EBUSY, str(left[0]), str(path)) from None
