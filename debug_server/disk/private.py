"""Creates private folders, and restricts existing ones with wider permissions."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def make_private(folder: Path) -> None:
    """Create the folder and its missing parents with mode 0700; an existing one keeps its mode."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for item in reversed(missing):
        item.mkdir(mode=0o700, exist_ok=True)


def tighten(folder: Path) -> None:
    """Remove the permissions of group and others from a folder of this user; others and missing ones are ignored."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            folder.chmod(0o700)
