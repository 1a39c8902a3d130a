"""Folders that only their owner may enter, also those that were made before with wider permissions."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing, closed to others; one that is there keeps its mode."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for item in reversed(missing):
        item.mkdir(mode=0o700, exist_ok=True)


def tighten(folder: Path) -> None:
    """Take the permissions of group and others from a folder of ours; a missing one and other users' are left alone."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
