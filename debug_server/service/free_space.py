"""Checks that the disk of the server's data has space for new work: bytes, and files (inodes).

On a full disk new work would fail. It would also use up the reserved space, which is needed to record how commands
ended and to close sessions.
"""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.errors import DiskFullError
from debug_server.runner.settings import RunnerPaths

_MIN_FREE_BYTES = 16 << 20  # twice the store's reserve, which is no room for new work when it was released
_SHARE_OF_BYTES = 50  # at most 1/50 of the disk, so that small disks are usable: of these, too, twice the reserve
_MIN_FREE_FILES = 1000
_READY_BYTES = 64 << 20
_SHARE_OF_FILES = 100
_RETRY_SECONDS = 30.0


def require_free_space(paths: RunnerPaths) -> None:
    """DiskFullError if the disk of the data folder is nearly full; a missing folder is not checked."""
    try:
        disk = os.statvfs(paths.artifacts_root)
    except OSError:
        return
    if disk.f_bavail * disk.f_frsize < min(_MIN_FREE_BYTES, disk.f_blocks * disk.f_frsize // _SHARE_OF_BYTES):
        left = f"{disk.f_bavail * disk.f_frsize} bytes free"
    elif _has_few_files(disk):
        left = f"{disk.f_favail} inodes free"
    else:
        return
    raise DiskFullError(
        f"the disk of {paths.artifacts_root} is full ({left}): close or reset sessions, remove logs of ended commands "
        f"in {paths.logs_dir}, or free space elsewhere on it, then try again",
        retry_after=_RETRY_SECONDS,
    )


def space_for_readiness(folder: Path) -> str:
    """``ok``, or what is short: the warning comes before new work is refused."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < _READY_BYTES:
        return f"only {free} bytes are free in {folder}"
    if _has_few_files(disk, factor=4):
        return f"only {disk.f_favail} inodes are free in {folder}"
    return "ok"


def _has_few_files(disk: os.statvfs_result, factor: int = 1) -> bool:
    """Never on a file system without a limit on files, which says that it has none."""
    return disk.f_files > 0 and disk.f_favail < factor * min(_MIN_FREE_FILES, disk.f_files // _SHARE_OF_FILES)
