"""Finds out whether git tracks a file, by reading the index of the work tree around it.

git itself is not run: settings are read before any program starts, and git would read the repository's own settings.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from debug_server.disk import trusted_users
from debug_server.errors import ConfigurationError

_FIXED_BYTES = 40  # of an entry, before its hash: times, device, inode, mode, owner, size
_EXTENDED = 0x4000
_MAX_TEXT_BYTES = 1 << 20
_MAX_INDEX_BYTES = 512 << 20  # of a million files it has about 100 MiB
_SHA256 = re.compile(r"^\s*objectformat\s*=\s*sha256\s*$", re.IGNORECASE | re.MULTILINE)


def tracking_tree(path: Path) -> Path | None:
    """The work tree whose index lists the path, a file below it, or a link or submodule above it; None if none does."""
    path = path.absolute()
    for tree in path.parents:
        if (folder := _git_folder(tree)) is not None:
            return (
                tree
                if _index_contains(folder, path.relative_to(tree).as_posix().encode(errors="surrogateescape"))
                else None
            )
    return None


def _git_folder(tree: Path) -> Path | None:
    """``.git``, or the folder that the file ``.git`` of a linked work tree or a submodule names.

    A ``.git`` of another user is ignored: otherwise, in a folder that others may write to, it could make every command
    fail.
    """
    entry = tree / ".git"
    try:
        if not {entry.lstat().st_uid, entry.stat().st_uid} <= trusted_users():
            return None
        if entry.is_dir():
            return entry
        text = _read_text(entry)
    except OSError:
        return None
    return tree / text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else None


def _common_folder(folder: Path) -> Path:
    """The folder with the settings that linked work trees share."""
    try:
        return folder / _read_text(folder / "commondir").strip()
    except FileNotFoundError:
        return folder


def _index_contains(folder: Path, wanted: bytes) -> bool:
    below = wanted + b"/"
    parts = wanted.split(b"/")
    prefixes = {b"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
    try:
        hash_bytes = 32 if _SHA256.search(_read_text(_common_folder(folder) / "config")) else 20
        # A split index keeps max_bytes of its entries in a file beside it.
        for path in (folder / "index", *folder.glob("sharedindex.*")):
            data = _read(path, _MAX_INDEX_BYTES)
            if any(name in prefixes or name.startswith(below) for name in _names(data, hash_bytes)):
                return True
    except ConfigurationError:  # which is a ValueError, too
        raise
    except (OSError, struct.error, ValueError):  # no index yet, or one that git cannot read either
        return False
    return False


def _read_text(path: Path) -> str:
    return _read(path, _MAX_TEXT_BYTES).decode(errors="surrogateescape")


def _read(path: Path, max_bytes: int) -> bytes:
    """A regular file's bytes; OSError for anything else, ConfigurationError for more than ``max_bytes``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        if found.st_size > max_bytes:  # an error, because the index might list the path
            raise ConfigurationError(f"{path} is larger than {max_bytes} bytes: the git index there cannot be read")
        return file.read(max_bytes)


def _names(data: bytes, hash_bytes: int) -> Iterator[bytes]:
    """The paths of an index of version 2, 3 or 4 (gitformat-index)."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC":
        return
    position, name = 12, b""
    for _ in range(count):
        (flags,) = struct.unpack_from(">H", data, position + _FIXED_BYTES + hash_bytes)
        start = position + _FIXED_BYTES + hash_bytes + (4 if flags & _EXTENDED else 2)
        kept = b""
        if version == 4:  # without the prefix that it shares with the previous name
            dropped, start = _offset(data, start)
            kept = name[: len(name) - dropped]
        end = data.index(0, start)
        name = kept + data[start:end]
        position = end + 1 if version == 4 else position + ((end - position + 8) & ~7)
        yield name


def _offset(data: bytes, position: int) -> tuple[int, int]:
    """A number of variable length, and the position after it."""
    value = data[position] & 127
    while data[position] & 128:
        position += 1
        value = ((value + 1) << 7) | (data[position] & 127)
    return value, position + 1
