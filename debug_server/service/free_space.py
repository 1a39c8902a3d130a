"""Checks that the disk of the server's data has space for new work.

On a full disk new work would fail. It would also use up the reserved space, which is needed to record how commands
ended and to close sessions.
"""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.errors import DiskFullError

_MIN_FREE_BYTES = 16 << 20  # twice the store's reserve
_SHARE = 100  # at most 1/100 of the disk, so that small disks are usable
_RETRY_SECONDS = 30.0


def require_free_space(folder: Path) -> None:
    """DiskFullError if the disk of ``folder`` is nearly full; a missing folder is not checked."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if free < min(_MIN_FREE_BYTES, size // _SHARE):
        raise DiskFullError(
            f"the disk of {folder} is full ({free} bytes free): close or reset sessions, or free space, then try again",
            retry_after=_RETRY_SECONDS,
        )
