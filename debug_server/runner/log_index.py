"""Reads the two files of a log: which bytes belong to which stream, even if the index is damaged.

A record ends at the next record's offset at the latest; a record that starts after its successor or has an unknown
stream is ignored. Bytes without a record are stdout. So the bytes are always exact; a damaged index affects only their
stream and time.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from debug_server.runner.log_format import END, RECORD, STDOUT, STREAM_NAMES, index_path

# Enough records for one read of small writes; with large writes, more would be parsed for nothing.
BATCH = 256

Record = tuple[int, int, int, int]  # offset, length, stream, time_ns
Span = tuple[int, int, int, int]  # start, end, stream, time_ns


class LogFiles:
    """The open pair of files of one log, shared by all readers in the process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.serial = next(_serials)
        self.empty_read: tuple[int, int, float] | None = (
            None  # offset, record, monotonic time of a read without new data
        )
        self._references = 0
        self._log = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._index = _open_index(path)

    @classmethod
    def acquire(cls, path: str | os.PathLike[str]) -> LogFiles:
        """The files at ``path``; call ``release`` afterwards. FileNotFoundError when there is no log."""
        key = str(Path(path).absolute())
        with _registry_lock:
            files = _registry.get(key)
            if files is None or not files._still_at_path():
                files = _registry[key] = cls(key)
            files._references += 1
        return files

    def release(self) -> None:
        """Close the files if no other reader in this process uses them."""
        with _registry_lock:
            self._references -= 1
            if self._references:
                return
            if _registry.get(self._path) is self:
                del _registry[self._path]
        os.close(self._log)
        if self._index >= 0:
            os.close(self._index)

    def _still_at_path(self) -> bool:
        try:
            return self._index >= 0 and _same(self._log, self._path) and _same(self._index, index_path(self._path))
        except FileNotFoundError:
            return False

    @property
    def shared(self) -> bool:
        """Whether the log has several readers."""
        return self._references > 1

    def size(self) -> int:
        """The size of the log in bytes."""
        return os.fstat(self._log).st_size

    def changed_ns(self) -> int:
        """The modification time of the log."""
        return os.fstat(self._log).st_mtime_ns

    def log_removed(self) -> bool:
        """Whether the log was deleted."""
        return os.fstat(self._log).st_nlink == 0

    def index_replaced(self) -> bool:
        """Whether a repair has replaced the index."""
        return self._index >= 0 and os.fstat(self._index).st_nlink == 0

    def data(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``; fewer if the log is shorter."""
        return os.pread(self._log, end - start, start)

    def record_count(self) -> int:
        """The number of complete records in the index."""
        return os.fstat(self._index).st_size // RECORD.size if self._has_index() else 0

    def records(self, first: int, count: int) -> list[Record]:
        """Up to ``count`` complete records from number ``first``."""
        return list(RECORD.iter_unpack(self.raw_records(first, count)))

    def raw_records(self, first: int, count: int) -> bytes:
        """The same, not decoded."""
        if not self._has_index():
            return b""
        raw = os.pread(self._index, count * RECORD.size, first * RECORD.size)
        return raw[: len(raw) - len(raw) % RECORD.size]

    def _has_index(self) -> bool:
        """Checked each time: a writer creates the log first, and the index before the first byte."""
        if self._index < 0:
            with _registry_lock:
                self._index = self._index if self._index >= 0 else _open_index(self._path)
        return self._index >= 0

    def sealed(self) -> bool:
        """Whether the last record closes the log."""
        count = self.record_count()
        last = self.records(count - 1, 1) if count else []
        return bool(last) and last[0][2] == END


def find_record(files: LogFiles, offset: int) -> int:
    """The number of the last record that starts at or before ``offset``, by binary search; 0 in a disordered index."""
    low, high = 0, files.record_count()
    low_offset, high_offset = 0, 1 << 64
    while high - low > 1:
        middle = (low + high) // 2
        probe = files.records(middle, 1)
        if not probe or not _plausible(probe[0], low_offset, high_offset):
            return 0
        if probe[0][0] <= offset:
            low, low_offset = middle, probe[0][0]
        else:
            high, high_offset = middle, probe[0][0]
    return low


@dataclass(slots=True)
class LogPosition:
    """The position of a reader; ``next_spans`` advances it."""

    offset: int
    record: int  # the first record that may cover bytes from ``offset`` on
    sealed: bool = False  # that record is the last one and closes the log
    stale: bool = False  # the index was replaced, so record numbers changed
    at_end: bool = False  # every byte was read, and more may follow


def next_spans(files: LogFiles, position: LogPosition, limit: int, *, live: bool) -> list[Span]:
    """The spans of up to ``limit`` bytes from ``position``; an empty list if there are no more now.

    With ``live``, the newest record is returned only when all its bytes are there, because a writer on a full disk
    removes a partial write; and reads end at multiples of ``limit``, so that followers read equal pieces and can share
    them.
    """
    while True:
        # Read the size first: then every byte below it has its record when the index is read.
        size = files.size()
        goal = min(size, position.offset + limit - (position.offset % limit if live else 0))
        count = BATCH - (position.record % BATCH if live else 0)
        before, records = position.record, files.records(position.record, count + 1)
        spans = _cover(records, position, goal, count, live=live, size=size)
        # The seal's own record is not passed over, so it is added here.
        passed_over = position.record - before + (1 if position.sealed else 0)
        all_covered = len(records) <= count and passed_over == len(records)
        if not spans and all_covered and position.offset < size:
            position.stale = live and files.index_replaced()
            return [] if position.stale else _uncovered(files, position, goal)
        if spans or position.record == before:
            position.at_end = all_covered and position.offset == size and not position.sealed
            return spans


def _uncovered(files: LogFiles, position: LogPosition, end: int) -> list[Span]:
    """Bytes after the last record."""
    start, position.offset = position.offset, end
    return [(start, end, STDOUT, files.changed_ns())]


def _cover(records: list[Record], position: LogPosition, goal: int, count: int, *, live: bool, size: int) -> list[Span]:
    """Advance ``position`` over the first ``count`` records, up to ``goal``; the spans of those bytes."""
    spans: list[Span] = []
    reached = position.offset
    position.sealed = False
    newest = len(records) - 1 if len(records) <= count else -1
    for number, ((offset, length, stream, time_ns), end) in enumerate(
        zip(records[:count], _ends(records), strict=False)
    ):
        if end >= offset and min(offset, goal) > reached:
            spans.append((reached, min(offset, goal), STDOUT, time_ns))
            reached = min(offset, goal)
        complete = number != newest or not live or offset + length <= size
        if min(end, goal) > reached and complete:
            spans.append((reached, min(end, goal), stream, time_ns))
            reached = min(end, goal)
        position.sealed = number == newest and stream == END
        if end > reached or position.sealed:
            break
        position.record += 1
    position.offset = reached
    return spans


def _ends(records: list[Record]) -> list[int]:
    """The real end of each record: its own length or the next valid record; 0 for an invalid one."""
    ends = [0] * len(records)
    following = 1 << 64
    for number in range(len(records) - 1, -1, -1):
        offset, length, stream, _ = records[number]
        if stream not in STREAM_NAMES and stream != END:
            continue
        if offset <= following:
            ends[number] = min(offset + length, following) if stream != END else offset
        following = offset
    return ends


def _plausible(record: Record, low: int, high: int) -> bool:
    return low <= record[0] <= high and (record[2] in STREAM_NAMES or record[2] == END)


def _open_index(path: str) -> int:
    try:
        return os.open(index_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _same(descriptor: int, path: str) -> bool:
    return os.path.samestat(os.fstat(descriptor), Path(path).stat())


_serials = itertools.count()
_registry: dict[str, LogFiles] = {}
_registry_lock = threading.Lock()


def _reset_lock() -> None:
    """After a fork: a thread of the parent may have held the lock."""
    global _registry_lock
    _registry_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_lock)
