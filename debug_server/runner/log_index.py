"""What a log's two files say: which bytes belong to which stream, however damaged the index is.

A record counts up to the next record's offset, whatever length it claims; one that starts after its successor, or names
an unknown stream, counts for nothing. Bytes that no record covers are stdout. So the bytes are always exact, and a bad
index can only blur their stream and time.
"""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from debug_server.runner.log_format import END, RECORD, STDOUT, STREAM_NAMES, index_path

# Enough records for one read of small writes; more would be parsed in vain when each covers 64 KiB.
BATCH = 256

Record = tuple[int, int, int, int]  # offset, length, stream, time_ns
Span = tuple[int, int, int, int]  # start, end, stream, time_ns


class LogFiles:
    """The open pair of files of one log; everybody in the process who reads the log shares one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.serial = next(_serials)
        self.vain_look: tuple[int, int, float] | None = None  # offset, record, monotonic time: there was nothing new
        self._references = 0
        self._log = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._index = _open_index(path)

    @classmethod
    def acquire(cls, path: str | os.PathLike[str]) -> LogFiles:
        """The pair that lies at ``path`` now, to be released; FileNotFoundError when there is no log."""
        key = str(Path(path).absolute())
        with _registry_lock:
            files = _registry.get(key)
            if files is None or not files._at_path():
                files = _registry[key] = cls(key)
            files._references += 1
        return files

    def release(self) -> None:
        """Close the files when nobody else in this process reads them."""
        with _registry_lock:
            self._references -= 1
            if self._references:
                return
            if _registry.get(self._path) is self:
                del _registry[self._path]
        os.close(self._log)
        if self._index >= 0:
            os.close(self._index)

    def _at_path(self) -> bool:
        try:
            return self._index >= 0 and _same(self._log, self._path) and _same(self._index, index_path(self._path))
        except FileNotFoundError:
            return False

    @property
    def shared(self) -> bool:
        """Whether several read this log."""
        return self._references > 1

    def size(self) -> int:
        """How many bytes the log has."""
        return os.fstat(self._log).st_size

    def changed_ns(self) -> int:
        """When the log was last written."""
        return os.fstat(self._log).st_mtime_ns

    def log_removed(self) -> bool:
        """Whether the log was deleted, so that nobody can continue it."""
        return os.fstat(self._log).st_nlink == 0

    def index_replaced(self) -> bool:
        """Whether a repair put another index in this one's place."""
        return self._index >= 0 and os.fstat(self._index).st_nlink == 0

    def data(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``; fewer if the log is shorter."""
        return os.pread(self._log, end - start, start)

    def record_count(self) -> int:
        """How many whole records the index has."""
        return os.fstat(self._index).st_size // RECORD.size if self._has_index() else 0

    def records(self, first: int, count: int) -> list[Record]:
        """Up to ``count`` whole records from number ``first``; half a record at the end is left out."""
        if not self._has_index():
            return []
        raw = os.pread(self._index, count * RECORD.size, first * RECORD.size)
        return list(RECORD.iter_unpack(raw[: len(raw) - len(raw) % RECORD.size]))

    def _has_index(self) -> bool:
        """Looked for again each time: a writer creates the log first, and its index before the first byte."""
        if self._index < 0:
            with _registry_lock:
                self._index = self._index if self._index >= 0 else _open_index(self._path)
        return self._index >= 0

    def sealed(self) -> bool:
        """Whether the last record says that nothing follows."""
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
class Place:
    """Where a reader stands; moved on by ``next_spans``."""

    offset: int
    record: int  # the first record that may cover bytes from ``offset`` on
    sealed: bool = False  # that record is the last and says that nothing follows
    stale: bool = False  # another index lies there now, with other record numbers
    at_end: bool = False  # every byte that there was has been passed, and more may follow


def next_spans(files: LogFiles, place: Place, limit: int, *, live: bool) -> list[Span]:
    """The spans of up to ``limit`` bytes from ``place``; an empty list means there are no more at present.

    With ``live`` the bytes of the newest record are held back until all of it is there: a writer on a full disk takes
    half a write back, and nobody shall have seen it. And reads end at round numbers, so that all who follow a log pass
    the same places and can share what one of them read.
    """
    while True:
        # The size is read first: by the time the index is read, every byte below it has its record.
        size = files.size()
        goal = min(size, place.offset + limit - (place.offset % limit if live else 0))
        count = BATCH - (place.record % BATCH if live else 0)
        before, records = place.record, files.records(place.record, count + 1)
        spans = _cover(records, place, goal, count, live=live, size=size)
        all_covered = len(records) <= count and place.record + place.sealed == before + len(records)
        if not spans and all_covered and place.offset < size:
            place.stale = live and files.index_replaced()
            return [] if place.stale else _uncovered(files, place, goal)
        if spans or place.record == before:
            place.at_end = all_covered and place.offset == size and not place.sealed
            return spans


def _uncovered(files: LogFiles, place: Place, end: int) -> list[Span]:
    """Bytes that no record covers, after the last."""
    start, place.offset = place.offset, end
    return [(start, end, STDOUT, files.changed_ns())]


def _cover(records: list[Record], place: Place, goal: int, count: int, *, live: bool, size: int) -> list[Span]:
    """Move ``place`` over the first ``count`` records, up to ``goal``, and say whose bytes those are."""
    spans: list[Span] = []
    position = place.offset
    place.sealed = False
    newest = len(records) - 1 if len(records) <= count else -1
    for number, ((offset, length, stream, time_ns), end) in enumerate(
        zip(records[:count], _ends(records), strict=False)
    ):
        if end >= offset and min(offset, goal) > position:
            spans.append((position, min(offset, goal), STDOUT, time_ns))
            position = min(offset, goal)
        complete = number != newest or not live or offset + length <= size
        if min(end, goal) > position and complete:
            spans.append((position, min(end, goal), stream, time_ns))
            position = min(end, goal)
        place.sealed = number == newest and stream == END
        if end > position or place.sealed:
            break
        place.record += 1
    place.offset = position
    return spans


def _ends(records: list[Record]) -> list[int]:
    """Where each record really ends: at its own length or at the next known record; 0 for one that says nothing."""
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


def _renew_lock() -> None:
    """A thread of the parent may have held the lock at the fork."""
    global _registry_lock
    _registry_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
