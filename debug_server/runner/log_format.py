"""The log on disk: raw bytes in arrival order, and a fixed-width index beside them.

``NAME.log`` holds the bytes and nothing else. ``NAME.log.idx`` holds one 24-byte record for each write: where it
starts, how long it is, which stream, when. A record is written *before* its bytes, so that a writer killed between the
two leaves a record without its bytes and never bytes of an unknown stream. Readers clip each record at the next
record's offset and at the end of the log. A record of stream END closes the log.

The keeper imports this module: it imports little, and only from the standard library.
"""

from __future__ import annotations

import errno
import os
import struct
import time

RECORD = struct.Struct("<QIB3xQ")  # offset, length, stream, nanoseconds since the epoch
STDOUT, STDERR, SYSTEM, END = 1, 2, 3, 255
STREAM_NAMES = {STDOUT: "stdout", STDERR: "stderr", SYSTEM: "system"}
STREAM_CODES = {name: code for code, name in STREAM_NAMES.items()}


def index_path(log_path: str | os.PathLike[str]) -> str:
    """The index file of a log."""
    return os.fspath(log_path) + ".idx"


class LogWriter:
    """The only writer of a log."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._index = os.open(index_path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self.offset = os.fstat(self._log).st_size
        self.written_ns = 0  # time of the last write
        self._records, torn = divmod(os.fstat(self._index).st_size, RECORD.size)
        if torn:  # an incomplete record of a killed writer; complete ones are never changed
            os.ftruncate(self._index, self._records * RECORD.size)

    def write(self, stream: int, data: bytes | memoryview) -> int:
        """Append ``data``; returns the offset after it. On OSError nothing was written."""
        length = len(data)
        try:
            self._record(length, stream)
            done = os.write(self._log, data)
            while done < length:
                done += os.write(self._log, data[done:])
        except OSError:
            self._undo()
            raise
        self._records += 1
        self.offset += length
        return self.offset

    def _record(self, length: int, stream: int) -> None:
        self.written_ns = time.time_ns()
        if os.write(self._index, RECORD.pack(self.offset, length, stream, self.written_ns)) != RECORD.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _undo(self) -> None:
        """Remove a partial write after a full disk, the bytes first, so that the call can be repeated."""
        os.ftruncate(self._log, self.offset)
        os.ftruncate(self._index, self._records * RECORD.size)

    def end(self) -> None:
        """Mark the log as complete: followers end here. On OSError the call can be repeated."""
        try:
            self._record(0, END)
        except OSError:
            self._undo()
            raise
        self._records += 1
        os.ftruncate(self._log, self.offset)  # changes nothing, but wakes followers: they watch the log, not the index

    def disk(self) -> os.statvfs_result:
        """Statistics of the log's file system."""
        return os.fstatvfs(self._log)

    def close(self) -> None:
        """Close both files."""
        os.close(self._log)
        os.close(self._index)
