"""Finds what a glob names below a folder, however deep it is, and says which folders it could not look into.

Not ``Path.glob``: that one ends with the first folder that vanishes or whose path is too long, and with a few hundred
folders inside each other; and two links to their own folder are a way to 2^40 others, which it would all go.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_ANY_DEPTH = "**"
_MOST_LINKED = 10_000  # folders that are looked into by way of a link; there are as many real ones as there are


def matches(root: Path, pattern: str, unread: Callable[[str, OSError], object]) -> Iterator[str]:
    """Names relative to ``root`` of everything but real folders; git's own folder at the top is skipped.

    ``**`` stands for any number of real folders, at the end also for whatever is in them; other parts follow links.
    Each folder is looked into once, for all the parts of the pattern that it may be.
    """
    wanted = _parts(pattern)
    waiting = [("", _reached(wanted, {0}), False)]
    linked = 0
    while waiting:
        folder, places, by_link = waiting.pop()
        linked += by_link
        if by_link and linked > _MOST_LINKED:
            if linked == _MOST_LINKED + 1:
                unread(folder, OSError(errno.ELOOP, f"more than {_MOST_LINKED} folders lie behind links"))
            continue
        for entry in _entries(root, folder, unread):
            name = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            fitting = {place for place in places if _fits(wanted[place], entry.name, is_folder=is_folder)}
            if not is_folder and len(wanted) - 1 in fitting:
                yield name
            following = {place if wanted[place] == _ANY_DEPTH else place + 1 for place in fitting} - {len(wanted)}
            if following and (is_folder or _leads_to_folder(entry)):
                waiting.append((name, _reached(wanted, following), by_link or not is_folder))


def _parts(pattern: str) -> tuple[str, ...]:
    parts = PurePosixPath(pattern).parts
    return (*parts, "*") if parts[-1] == _ANY_DEPTH else parts


def _reached(wanted: tuple[str, ...], places: set[int]) -> frozenset[int]:
    """The parts that an entry may be: behind ``**``, which can be no folder at all, also the next one."""
    found = set(places)
    for place in range(min(places), len(wanted)):
        if place in found and wanted[place] == _ANY_DEPTH:
            found.add(place + 1)
    return frozenset(found)


def _fits(part: str, name: str, *, is_folder: bool) -> bool:
    return is_folder if part == _ANY_DEPTH else fnmatchcase(name, part)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
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
