"""Whether the disk that holds the server's data has room for new work.

New work on a full disk would fail, and use up the space that is kept for the ends of commands and for closing sessions,
which is how space is freed.
"""

from __future__ import annotations

import os
from pathlib import Path

from debug_server.errors import DiskFullError

_ROOM_BYTES = 16 << 20  # twice what the store keeps for ends
_SHARE = 100  # at most this part of the disk: a small disk is not full at once
_RETRY_SECONDS = 30.0


def require_free_space(folder: Path) -> None:
    """DiskFullError when hardly any space is left on the disk of ``folder``; a missing folder is not judged."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    if free < min(_ROOM_BYTES, size // _SHARE):
        raise DiskFullError(
            f"the disk of {folder} is full ({free} bytes free): close or reset sessions, or free space, then try again",
            retry_after=_RETRY_SECONDS,
        )
