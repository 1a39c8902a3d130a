"""Finds files of a workspace that are Git LFS pointers: git checks out their address instead of their content."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

_ATTRIBUTES = ".gitattributes"
_FILTERED = re.compile(r"^(?![#\s])(\S+)\s(?:.*\s)?filter=lfs(?:\s|$)", re.MULTILINE)
_BEGINNING = b"version https://git-lfs.github.com/spec/v1\n"
_MAX_POINTER = 1024  # bytes, as in the specification
_MAX_ATTRIBUTES = 1 << 20
_MAX_ENTRIES = 50_000  # the search of a huge repository ends there
_SHOWN = 5


def lfs_hint(workspace: Path) -> str | None:
    """Which files are pointers, and how to get their content; None if none is."""
    patterns = _patterns(workspace)
    found = list(_pointers(workspace, patterns)) if patterns else []
    if not found:
        return None
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    install = "" if shutil.which("git-lfs") else "install git-lfs (apt-get install git-lfs), then "
    return (
        f"{len(found)} of the files are Git LFS pointers without their content: {', '.join(found[:_SHOWN])}{more}; "
        f"{install}run `git lfs pull` in the session before what needs them"
    )


def _patterns(workspace: Path) -> list[str]:
    """The names that the repository's attributes give to LFS; a pattern's folders are ignored."""
    try:
        with open(workspace / _ATTRIBUTES, "rb", opener=_open_file) as file:
            text = file.read(_MAX_ATTRIBUTES).decode(errors="surrogateescape")
    except OSError:
        return []
    return [pattern.rpartition("/")[2] for pattern in _FILTERED.findall(text)]


def _pointers(workspace: Path, patterns: list[str]) -> Iterator[str]:
    everything = any(pattern in ("", "*", "**") for pattern in patterns)
    waiting, left = [""], _MAX_ENTRIES
    while waiting and left > 0:
        folder = waiting.pop()
        with suppress(OSError), os.scandir(workspace / folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                left -= 1
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    waiting += [name] if entry.name != ".git" else []
                    continue
                named = everything or any(fnmatchcase(entry.name, pattern) for pattern in patterns)
                if named and _is_pointer(entry):
                    yield name


def _is_pointer(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= _MAX_POINTER:
            with open(entry.path, "rb", opener=_open_file) as file:
                return file.read(len(_BEGINNING)) == _BEGINNING
    return False


def _open_file(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # the holder may put a pipe there
