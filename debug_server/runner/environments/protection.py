"""Write permission of a sealed environment: taken from its files and folders, so that only root can change it.

A file may be a hard link into the build tool's cache, and then loses the permission there and in whatever else is
linked to it: no comparison counts it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

WRITING = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def protect(root: Path) -> None:
    """Let nobody but root change anything below ``root``."""
    for folder, _, files in os.walk(root, topdown=False):
        for path in (*(f"{folder}/{name}" for name in files), folder):
            with suppress(FileNotFoundError, PermissionError):  # another user's file is not ours to write to either
                mode = os.lstat(path).st_mode
                if mode & WRITING and not stat.S_ISLNK(mode):
                    os.chmod(path, stat.S_IMODE(mode) & ~WRITING)  # noqa: PTH101  (text paths: thousands of them)


def open_folders(root: Path) -> None:
    """Let files be added below ``root`` again, by its owner."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)
