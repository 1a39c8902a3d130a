"""Dates the files of a checkout, and their entries in git's index, a little back; finds those that were touched since.

git compares by content every file that is not older than its index. A checkout writes both within the same second, so
the first ``git status`` would read everything. The entries are rewritten in place (index format 2 or 3, which is what
git writes unless told otherwise): no file is read, and a file whose content git would normalise stays as clean as git
left it.
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


def date_back(root: Path, index: Path, names: Iterable[bytes]) -> None:
    """Make the named files below ``root`` older than ``index``, which goes on calling them unchanged."""
    moment = int(time.time()) - _SECONDS_BACK
    stamps: dict[bytes, bytes] = {}
    folder = os.fsencode(root) + b"/"
    for name in names:
        try:
            os.utime(folder + name, (moment, moment), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):  # the change was its removal
            continue
        changed = os.lstat(folder + name).st_ctime_ns
        stamps[name] = _STAMP.pack(changed // 10**9, changed % 10**9, moment, 0)
    if stamps:
        data = _read(index)
        for at, name in _entries(data):
            if stamp := stamps.get(name):
                data[at : at + _STAMP.size] = stamp
        _write(index, data)


def forget_touched(root: Path, index: Path) -> list[bytes]:
    """Make git doubt every file whose inode changed since ``date_back``, by the nanosecond; returns their names.

    git itself compares whole seconds: a file rewritten and dated back within one would pass for unchanged. One that has
    another name, perhaps outside of ``root``, is removed here: through that name the next holder's file could change.
    """
    data = _read(index)
    touched = []
    folder = os.fsencode(root) + b"/"
    for at, name in _entries(data):
        seconds, nanoseconds, _, _ = _STAMP.unpack_from(data, at)
        found = _look_at(folder + name)
        if found is None or found.st_ctime_ns != seconds * 10**9 + nanoseconds:
            data[at : at + _STAMP.size] = bytes(_STAMP.size)
            touched.append(name)
            if found is not None and found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                os.unlink(folder + name)  # noqa: PTH108  a name of bytes
    if touched:
        _write(index, data)
    return touched


def doubt_touched(root: Path, index: Path) -> None:
    """Make git read every file that is not the one, or was changed since, that ``date_back`` left; it may be equal.

    An inode's change time can be set by nobody, unlike size and date. The inode itself tells two folders apart that
    took each other's place: their files were dated within one tick of the clock.
    """
    data = _read(index)
    folder = os.fsencode(root) + b"/"
    doubted = False
    for at, name in _entries(data):
        found = _look_at(folder + name)
        if found is None or not _is_same(found, data, at):
            data[at + _SIZE_AT : at + _SIZE_AT + 4] = bytes(4)  # git's own mark of an entry that it must not trust
            doubted = True
    if doubted:
        _write(index, data)


def tracked(index: Path) -> set[bytes]:
    """The names in the index."""
    return {name for _, name in _entries(_read(index))}


def untouched(root: Path, index: Path) -> dict[bytes, bool]:
    """The names in the index, and of each whether it is the very file, and as, ``date_back`` left it below ``root``."""
    data = _read(index)
    folder = os.fsencode(root) + b"/"
    looks = ((at, name, _look_at(folder + name)) for at, name in _entries(data))
    return {
        name: found is not None and not stat.S_ISDIR(found.st_mode) and _is_same(found, data, at)
        for at, name, found in looks
    }


def _is_same(found: os.stat_result, data: bytearray, at: int) -> bool:
    seconds, nanoseconds, _, _ = _STAMP.unpack_from(data, at)
    (inode,) = _INODE.unpack_from(data, at + _INODE_AT)
    return bool(found.st_ctime_ns == seconds * 10**9 + nanoseconds and found.st_ino & 0xFFFFFFFF == inode)


def _look_at(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entries(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Where each entry begins, and the path it is about."""
    _, _, count = _HEADER.unpack_from(data)
    at, limit = _HEADER.size, len(data) - _CHECKSUM
    for _ in range(count):
        flags = at + _FLAGS_AT
        end = -1
        if flags < limit:
            start = flags + (4 if data[flags] << 8 & _EXTENDED else 2)
            end = data.find(0, start, limit)
        if end < 0:
            raise WorktreePoolError("the index of a checkout is cut off")
        yield at, bytes(data[start:end])
        at += (end - at + 8) & ~7  # entries are padded with one to eight NULs


def _read(index: Path) -> bytearray:
    data = bytearray(index.read_bytes())
    if len(data) < _HEADER.size + _CHECKSUM:  # the machine went down before it was written
        raise WorktreePoolError(f"the index {index} is cut off")
    signature, version, _ = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        raise WorktreePoolError(f"git wrote an index of format {version} to {index}: formats 2 and 3 are understood")
    return data


def _write(index: Path, data: bytearray) -> None:
    data[-_CHECKSUM:] = hashlib.sha1(data[:-_CHECKSUM], usedforsecurity=False).digest()
    fresh = index.with_name("index.dated")
    fresh.write_bytes(data)
    fresh.rename(index)
