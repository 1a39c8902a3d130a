"""Disk space reserved for the database: a file beside it that is deleted when the disk is full.

created (while enough is free) --disk full--> deleted, so the next commits fit --space is free again--> created again
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

_LOG = logging.getLogger(__name__)
RESERVE_BYTES = 8 << 20  # enough to record the end of some hundred commands
_SHARE = 100  # at most 1/100 of the disk
_MIN_BYTES = 256 << 10  # enough for a few commits
_FREE_FACTOR = 4  # it is created only if this many times its size is free


class Reserve:
    """The file ``DATABASE-reserve``."""

    def __init__(self, database: Path, size: int = RESERVE_BYTES) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self._size = size
        self._missing = False  # whether it is wanted, and there was no space for it

    def create(self) -> None:
        """Create the file, unless it exists or the disk is nearly full; then ``restore`` creates it."""
        if self._path.exists():
            self._missing = False
            return
        self._missing = True
        try:
            disk = os.statvfs(self._path.parent)
            size = min(self._size, max(_MIN_BYTES, disk.f_blocks * disk.f_frsize // _SHARE))
            if disk.f_bavail * disk.f_frsize >= _FREE_FACTOR * size:
                self._allocate(size)
                self._missing = False
        except OSError as error:
            self._missing = False  # not with every write; the next ``create`` tries again
            _LOG.warning("reserve_not_created", extra={"path": str(self._path), "error": str(error)})

    def restore(self) -> None:
        """Create the file as soon as there is space, if it was released or could not be created."""
        if self._missing:
            self.create()

    def release(self) -> None:
        """Delete the file, to make space for the next writes."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
            self._missing = True
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
