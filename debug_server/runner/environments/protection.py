"""Removes the write permission of the files and folders of a sealed environment, so that only root can change it.

A file may be a hard link into the build tool's cache; it then loses the permission there, and in every environment with
the same file. So comparisons ignore the write bits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

WRITING = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def protect(root: Path, modes: Mapping[str, int]) -> None:
    """Let nobody but root change anything below ``root``; ``modes`` are those of its files."""
    top = os.fspath(root)
    folders = {top}
    for path, mode in modes.items():
        _set_mode(f"{top}/{path}", mode)
        folder = path.rpartition("/")[0]
        while folder and f"{top}/{folder}" not in folders:
            folders.add(f"{top}/{folder}")
            folder = folder.rpartition("/")[0]
    for folder in folders:
        _set_mode(folder, 0o755)


def _set_mode(path: str, mode: int) -> None:
    with suppress(FileNotFoundError, PermissionError):  # this user cannot write to another user's file anyway
        os.chmod(path, stat.S_IMODE(mode) & ~WRITING)  # noqa: PTH101  (text paths: thousands of them)


def set_folders_writable(root: Path, *, writable: bool) -> None:
    """Give or take the owner's write permission on all folders below ``root``: files can be added or not."""
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755 if writable else 0o555)
