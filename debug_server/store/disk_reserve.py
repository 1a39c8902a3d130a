"""Disk space reserved for the database: what is deleted beside it when the disk is full.

created (while enough is free) --disk full--> deleted, so the next commits fit --space is free again--> created again

Space is bytes and files (inodes): one large file, and a folder of empty ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

_LOG = logging.getLogger(__name__)
RESERVE_BYTES = 8 << 20  # enough to record the end of some hundred commands
RESERVE_FILES = 64  # a start needs a dozen: the database's two, locks, sockets, keepers
_SHARE = 100  # at most 1/100 of the disk
_MIN_BYTES = 256 << 10  # enough for a few commits
_FREE_FACTOR = 4  # it is created only if this many times its size is free


class Reserve:
    """The file ``DATABASE-reserve`` and the folder ``DATABASE-reserve-files``."""

    def __init__(self, database: Path, size: int = RESERVE_BYTES) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self._files = database.with_name(f"{database.name}-reserve-files")
        self._size = size
        self._missing = False  # whether it is wanted, and there was no space for it

    def create(self) -> None:
        """Create what does not exist, unless the disk is nearly full; then ``restore`` creates it."""
        self._missing = False
        try:
            disk = os.statvfs(self._path.parent)
            self._create_bytes(disk)
            self._create_files(disk)
        except OSError as error:  # not with every write; the next ``create`` tries again
            _LOG.warning("reserve_not_created", extra={"path": str(self._path), "error": str(error)})

    def restore(self) -> None:
        """Create it as soon as there is space, if it was released or could not be created."""
        if self._missing:
            self.create()

    def release(self) -> None:
        """Delete it, to make space for the next writes."""
        self._release_files()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
            self._missing = True
            _LOG.warning("reserve_released", extra={"path": str(self._path)})

    def release_files_if_few(self) -> None:
        """Delete the empty files if hardly another one can be created; at a start, which creates some."""
        with contextlib.suppress(OSError):  # the folder does not exist yet, or opening the database says what is wrong
            disk = os.statvfs(self._path.parent)
            if disk.f_files > 0 and disk.f_favail < RESERVE_FILES:
                self._release_files()

    def _release_files(self) -> None:
        if self._files.exists():
            shutil.rmtree(self._files, ignore_errors=True)  # as another process does
            self._missing = True
            _LOG.warning("reserve_released", extra={"path": str(self._files)})

    def _create_bytes(self, disk: os.statvfs_result) -> None:
        if self._path.exists():
            return
        size = min(self._size, max(_MIN_BYTES, disk.f_blocks * disk.f_frsize // _SHARE))
        if disk.f_bavail * disk.f_frsize >= _FREE_FACTOR * size:
            self._allocate(size)
        else:
            self._missing = True

    def _create_files(self, disk: os.statvfs_result) -> None:
        if self._files.exists() or disk.f_files == 0:  # without a limit on files
            return
        if disk.f_favail < _FREE_FACTOR * RESERVE_FILES:
            self._missing = True
            return
        self._files.mkdir(mode=0o700)
        for number in range(RESERVE_FILES):
            (self._files / str(number)).touch()

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
