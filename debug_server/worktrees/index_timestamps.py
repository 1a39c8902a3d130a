"""Backdates the files of a checkout and their entries in git's index, and finds files that changed since.

git reads every file that is not older than its index. A checkout writes both within the same second, so the first
``git status`` would read everything. The entries are rewritten in place (index format 2 or 3, git's default): no file
is read, and a file whose content git would normalise stays unchanged for git.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from debug_server.errors import WorktreePoolError

_SECONDS_BACK = 10
_HEADER = struct.Struct(">4sII")
_STAMP = struct.Struct(">IIII")  # ctime and mtime, each as seconds and nanoseconds
_INODE = struct.Struct(">I")
_INODE_AT, _SIZE_AT, _FLAGS_AT = 20, 36, 60
_EXTENDED = 0x4000
_CHECKSUM = 20


def backdate(root: Path, index: Path, names: Iterable[bytes]) -> None:
    """Make the named files below ``root`` older than ``index``, and keep them unchanged for git."""
    moment = int(time.time()) - _SECONDS_BACK
    stamps: dict[bytes, bytes] = {}
    folder = os.fsencode(root) + b"/"
    for name in names:
        try:
            os.utime(folder + name, (moment, moment), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):  # the file was removed
            continue
        changed = os.lstat(folder + name).st_ctime_ns
        stamps[name] = _STAMP.pack(changed // 10**9, changed % 10**9, moment, 0)
    if stamps:
        data = _read(index)
        for at, name in _entries(data):
            if stamp := stamps.get(name):
                data[at : at + _STAMP.size] = stamp
        _write(index, data)


def reset_changed(root: Path, index: Path) -> list[bytes]:
    """Clear the timestamps of every file whose inode changed since ``backdate``, so that git rewrites it; their names.

    git compares whole seconds only: it would miss a file that was rewritten and backdated within one. A file with
    another hard link is removed: through that link the next holder's file could be changed.
    """
    data = _read(index)
    touched = []
    folder = os.fsencode(root) + b"/"
    for at, name in _entries(data):
        seconds, nanoseconds, _, _ = _STAMP.unpack_from(data, at)
        found = _lstat(folder + name)
        if found is None or found.st_ctime_ns != seconds * 10**9 + nanoseconds:
            data[at : at + _STAMP.size] = bytes(_STAMP.size)
            touched.append(name)
            if found is not None and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                os.unlink(folder + name)  # noqa: PTH108  a name of bytes
    if touched:
        _write(index, data)
    return touched


def recheck_changed(root: Path, index: Path) -> None:
    """Make git compare the content of every file that was changed or replaced since ``backdate``.

    Nobody can set the change time of an inode, unlike size and modification time. The inode number detects two folders
    that were swapped: their files may have been backdated within one tick of the clock.
    """
    data = _read(index)
    folder = os.fsencode(root) + b"/"
    doubted = False
    for at, name in _entries(data):
        found = _lstat(folder + name)
        if found is None or not _is_same(found, data, at):
            data[at + _SIZE_AT : at + _SIZE_AT + 4] = bytes(4)  # git's own mark for an entry that must be compared
            doubted = True
    if doubted:
        _write(index, data)


def tracked_files(index: Path) -> set[bytes]:
    """The names in the index."""
    return {name for _, name in _entries(_read(index))}


def unchanged_files(root: Path, index: Path) -> dict[bytes, bool]:
    """Each name in the index, and whether its file below ``root`` is as ``backdate`` left it."""
    data = _read(index)
    folder = os.fsencode(root) + b"/"
    looks = ((at, name, _lstat(folder + name)) for at, name in _entries(data))
    return {
        name: found is not None and not stat.S_ISDIR(found.st_mode) and _is_same(found, data, at)
        for at, name, found in looks
    }


def _is_same(found: os.stat_result, data: bytearray, at: int) -> bool:
    seconds, nanoseconds, _, _ = _STAMP.unpack_from(data, at)
    (inode,) = _INODE.unpack_from(data, at + _INODE_AT)
    return bool(found.st_ctime_ns == seconds * 10**9 + nanoseconds and found.st_ino & 0xFFFFFFFF == inode)


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entries(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Offset and path of each entry."""
    _, _, count = _HEADER.unpack_from(data)
    at, limit = _HEADER.size, len(data) - _CHECKSUM
    for _ in range(count):
        flags = at + _FLAGS_AT
        end = -1
        if flags < limit:
            start = flags + (4 if data[flags] << 8 & _EXTENDED else 2)
            end = data.find(0, start, limit)
        if end < 0:
            raise WorktreePoolError("the index of a checkout is truncated")
        yield at, bytes(data[start:end])
        at += (end - at + 8) & ~7  # entries are padded with one to eight NULs


def _read(index: Path) -> bytearray:
    data = bytearray(index.read_bytes())
    if len(data) < _HEADER.size + _CHECKSUM:  # the machine crashed before it was written
        raise WorktreePoolError(f"the index {index} is truncated")
    signature, version, _ = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        raise WorktreePoolError(f"git wrote an index of format {version} to {index}: formats 2 and 3 are supported")
    return data


def _write(index: Path, data: bytearray) -> None:
    data[-_CHECKSUM:] = hashlib.sha1(data[:-_CHECKSUM], usedforsecurity=False).digest()
    fresh = index.with_name("index.dated")
    fresh.write_bytes(data)
    fresh.rename(index)
