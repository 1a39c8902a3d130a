"""Finds the files that a glob matches below a folder, at any depth, and reports folders that it could not read.

``Path.glob`` is not used: it fails at the first folder that vanishes or whose path is too long, and after a few hundred
nested folders; and with two links to their own folder it follows 2^40 paths.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_ANY_DEPTH = "**"
_MAX_LINKED = 10_000  # folders reached through a link; the number of real folders is not limited


def matches(root: Path, pattern: str, unread: Callable[[str, OSError], object]) -> Iterator[str]:
    """The matching names, relative to ``root``, of everything but real folders; ``.git`` at the top is skipped.

    ``**`` matches any number of real folders, and at the end also their contents; other parts follow links.
    Each folder is read once, for all the parts of the pattern that it can match.
    """
    wanted = _parts(pattern)
    waiting = [("", _reached(wanted, {0}), False)]
    linked = 0
    while waiting:
        folder, places, by_link = waiting.pop()
        linked += by_link
        if by_link and linked > _MAX_LINKED:
            if linked == _MAX_LINKED + 1:
                unread(folder, OSError(errno.ELOOP, f"more than {_MAX_LINKED} folders are behind links"))
            continue
        for entry in _entries(root, folder, unread):
            name = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            fitting = {place for place in places if _fits(wanted[place], entry.name, is_folder=is_folder)}
            if not is_folder and len(wanted) - 1 in fitting:
                yield name
            following = {place if wanted[place] == _ANY_DEPTH else place + 1 for place in fitting} - {len(wanted)}
            if following and (is_folder or _is_link_to_folder(entry)):
                waiting.append((name, _reached(wanted, following), by_link or not is_folder))


def _parts(pattern: str) -> tuple[str, ...]:
    parts = PurePosixPath(pattern).parts
    return (*parts, "*") if parts[-1] == _ANY_DEPTH else parts


def _reached(wanted: tuple[str, ...], places: set[int]) -> frozenset[int]:
    """The parts that an entry can match: after ``**``, which can match no folder at all, also the next part."""
    found = set(places)
    for place in range(min(places), len(wanted)):
        if place in found and wanted[place] == _ANY_DEPTH:
            found.add(place + 1)
    return frozenset(found)


def _fits(part: str, name: str, *, is_folder: bool) -> bool:
    return is_folder if part == _ANY_DEPTH else fnmatchcase(name, part)


def _is_link_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:  # a loop, most often
        return False


def _entries(root: Path, folder: str, unread: Callable[[str, OSError], object]) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder) as entries:
            yield from (entry for entry in entries if folder or entry.name != ".git")
    except OSError as error:
        unread(folder or ".", error)
