"""Space kept for the database on its own disk: a file beside it that is given up when nothing else is left.

made (while there is plenty) --disk full--> removed: the next commits fit --space is back--> made again
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

_LOG = logging.getLogger(__name__)
RESERVE_BYTES = 8 << 20  # some hundred ends of commands
_SHARE = 100  # at most this part of the disk
_LEAST = 256 << 10  # less would not hold a few commits
_PLENTY = 4  # it is made while this many times its size is free


class Reserve:
    """The file ``DATABASE-reserve``."""

    def __init__(self, database: Path, size: int = RESERVE_BYTES) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self._size = size

    def make(self) -> None:
        """Set the space aside, unless that is done or the disk is nearly full."""
        if self._path.exists():
            return
        try:
            disk = os.statvfs(self._path.parent)
            size = min(self._size, max(_LEAST, disk.f_blocks * disk.f_frsize // _SHARE))
            if disk.f_bavail * disk.f_frsize >= _PLENTY * size:
                self._allocate(size)
        except OSError as error:
            _LOG.warning("reserve_not_made", extra={"path": str(self._path), "error": str(error)})

    def release(self) -> None:
        """Give the space to whoever writes next."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
            _LOG.warning("reserve_released", extra={"path": str(self._path)})

    def _allocate(self, size: int) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
            draft.rename(self._path)
        except OSError:
            draft.unlink()
            raise
        finally:
            os.close(descriptor)
