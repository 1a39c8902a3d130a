"""Finds what a glob names below a folder, however deep it is, and says which folders it could not look into.

Not ``Path.glob``: that one ends with the first folder that vanishes or whose path is too long, and with a few hundred
folders inside each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_ANY_DEPTH = "**"


def matches(root: Path, pattern: str, unread: Callable[[str, OSError], object]) -> Iterator[str]:
    """Names relative to ``root`` of everything but real folders; git's own folder at the top is skipped.

    ``**`` stands for any number of real folders, at the end also for whatever is in them; other parts follow links.
    """
    parts = PurePosixPath(pattern).parts
    waiting = [("", (*parts, "*") if parts[-1] == _ANY_DEPTH else parts)]
    seen = set(waiting)
    while waiting:
        folder, wanted = waiting.pop()
        steps = {(folder, wanted[1:])} if wanted[0] == _ANY_DEPTH else set()
        for entry in _entries(root, folder, unread):
            name = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if wanted[0] == _ANY_DEPTH:
                steps |= {(name, wanted)} if is_folder else set()
            elif fnmatchcase(entry.name, wanted[0]):
                if len(wanted) > 1:
                    steps |= {(name, wanted[1:])} if is_folder or _leads_to_folder(entry) else set()
                elif not is_folder:
                    yield name
        waiting += steps - seen
        seen |= steps


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
