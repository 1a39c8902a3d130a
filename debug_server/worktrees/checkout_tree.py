"""Cleans and copies a checkout entry by entry, also what git does not see: pipes, devices, permissions of folders.

Without recursion: a command can leave folders nested deeper than Python's stack.
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
from debug_server.worktrees.index_timestamps import tracked_files, unchanged_files

Discard = Callable[[Path], None]


def remove_untracked(tree: Path, index: Path, like: Path, discard: Discard) -> None:
    """Remove everything the index does not name, and give each folder the attributes of the new folder ``like``.

    Files that the index names stay as they are. OSError where something cannot be removed, or where a folder has become
    a link meanwhile: each folder is held open, so nothing outside the tree is changed or removed.
    """
    files = tracked_files(index)
    folders = _folders_of(files)
    usual = _FolderAttributes.of(like)
    with open_folder(tree) as root:
        waiting = [b""]
        while waiting:
            folder = waiting.pop()
            with root.below(os.fsdecode(folder) or ".") as opened:
                usual.apply(opened.path)
                for name, entry in _entries(opened.path, prefix=folder):
                    if entry.is_dir(follow_symlinks=False) and name in folders:
                        waiting.append(name)
                    elif name not in files or not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                        _remove(_at(opened.path, entry.name), discard)


def copy_changes(source: Path, index: Path, target: Path, discard: Discard) -> None:
    """Make ``target``, a clean checkout, equal to ``source``, a changed checkout of the same commit with that index."""
    files = unchanged_files(source, index)
    folders = _folders_of(files)
    usual = _FolderAttributes.of(target)
    common = [b""]
    differing = []
    for folder in common:  # grows in the loop
        for name, entry in _entries(_at(source, folder), prefix=folder):
            if entry.is_dir(follow_symlinks=False) and name in folders:
                common.append(name)
            elif not files.get(name, False):
                differing.append(name)
    kept = set(common)
    touched = [name for name, same in files.items() if not same]
    for name in (b".git", *touched, *(folders - kept)):
        if _parent(name) in kept:  # else it is removed with its folder
            _remove(_at(target, name), discard)
    copy_below(sorted(differing), source, target)
    for folder in reversed(common):  # last, and inner folders first: a folder may forbid writing
        if (attributes := _FolderAttributes.of(_at(source, folder))) != usual:
            attributes.apply(_at(target, folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class _FolderAttributes:
    """Permissions, owner and extended attributes of a folder."""

    mode: int
    owner: tuple[int, int]
    attributes: dict[str, bytes]  # access lists are among them

    @classmethod
    def of(cls, folder: Path) -> _FolderAttributes:
        found = folder.stat()
        owner = (found.st_uid, found.st_gid)
        return cls(mode=stat.S_IMODE(found.st_mode), owner=owner, attributes=_attributes(folder))

    def apply(self, folder: Path) -> None:
        """Set them on another folder."""
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
        folder.chmod(self.mode)  # setting an access list changes the mode


def _attributes(path: Path) -> dict[str, bytes]:
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:  # the file system does not support them
            return {}
        raise


def _entries(folder: Path, *, prefix: bytes) -> Iterator[tuple[bytes, os.DirEntry[bytes]]]:
    """The entries of a folder, each with its name relative to the root; ``prefix`` is the name of the folder."""
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


def _remove(path: Path, discard: Discard) -> None:
    """Remove a file or a folder; a missing one is fine."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        discard(path)
    except OSError:  # a folder without write permission cannot be renamed either
        if left := remove_tree(path):
            raise OSError(errno.EBUSY, str(left[0]), str(path)) from None
