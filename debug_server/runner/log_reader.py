"""Reads a log by byte offset, in bounded pieces, and repairs an index that a crash damaged."""

from __future__ import annotations

import filecmp
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.runner.log_format import END, RECORD, STREAM_CODES, STREAM_NAMES, LogWriter, index_path
from debug_server.runner.log_index import LogFiles, LogPosition, Span, find_record, next_spans

READ_SIZE = 256 << 10
_MAX_TAIL_BYTES = 1 << 20  # bytes that ``tail_lines`` reads at most: a log may be one long line


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment:
    """The bytes of one write to one stream, or a part of them."""

    offset: int
    stream: str
    data: bytes
    time_ns: int

    @property
    def end(self) -> int:
        """The offset of the byte after the last."""
        return self.offset + len(self.data)


class LogReader:
    """The log as it is now; does not wait, and returns everything that is on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._files = _acquire(path)
        self._closed = False

    def size(self) -> int:
        """The size of the log in bytes."""
        return self._files.size()

    def ended(self) -> bool:
        """Whether its writer or recovery has sealed it."""
        return self._files.sealed()

    def read(self, offset: int, limit: int = READ_SIZE) -> list[LogSegment]:
        """Up to ``limit`` bytes from ``offset``; empty at the end."""
        return list(self._between(_checked(offset, limit), offset + limit))

    def segments(self, offset: int = 0) -> Iterator[LogSegment]:
        """Everything from ``offset`` to the present end."""
        return self._between(_checked(offset, READ_SIZE), self.size())

    def _between(self, start: int, end: int) -> Iterator[LogSegment]:
        position = LogPosition(offset=start, record=find_record(self._files, start))
        while position.offset < end:
            found = _read(self._files, position, min(READ_SIZE, end - position.offset), live=False)
            if not found:
                return
            yield from found

    def stream_bytes(self, stream: str) -> Iterator[bytes]:
        """The bytes of one stream, in pieces."""
        check_stream(stream)
        return (segment.data for segment in self.segments() if segment.stream == stream)

    def data(self, start: int, end: int) -> bytes:
        """The bytes between two offsets, all streams together; fewer if the log ends before."""
        return self._files.data(start, max(start, end))

    def tail(self, size: int) -> bytes:
        """The last ``size`` bytes of the log, all streams together."""
        end = self.size()
        return self._files.data(max(0, end - size), end)

    def tail_lines(self, count: int) -> list[bytes]:
        """The last ``count`` lines without their line ends, out of at most the last mebibyte."""
        size = 4096
        while (tail := self.tail(size)).count(b"\n") <= count and size < min(self.size(), _MAX_TAIL_BYTES):
            size *= 4
        return tail.splitlines()[-count:] if count > 0 else []

    def close(self) -> None:
        """Release the files; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._files.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LogCursor:
    """A position in a log that is still being written, or does not exist yet; never waits.

    Read until the list is empty, then check ``ended``, then wait for a wake-up and read again; or wait as soon as
    ``caught_up``. Every byte is returned once, when its write is complete or was abandoned. May be closed from another
    thread.

    With ``merge_seconds``, writes to one stream within that time are merged into one segment with the first time.
    """

    def __init__(self, path: str | os.PathLike[str], offset: int = 0, *, merge_seconds: float = 0.0) -> None:
        self._path = os.fspath(path)
        self._merge_ns = int(merge_seconds * 1e9)
        self._files: LogFiles | None = None
        self._position = LogPosition(offset=_checked(offset, READ_SIZE), record=0)
        self._lock = threading.Lock()
        self._idle = False  # the last read found nothing, or left nothing
        self.ended = (
            False  # nothing follows: the log is sealed and read to its end, or deleted, or this cursor is closed
        )

    @property
    def offset(self) -> int:
        """The offset of the next byte to read."""
        return self._position.offset

    @property
    def caught_up(self) -> bool:
        """Whether the last read returned everything up to its ``since``, and the log is not sealed."""
        return self._position.at_end

    @property
    def opened(self) -> bool:
        """Whether the log existed at some read."""
        return self._files is not None

    def read(self, limit: int = READ_SIZE, *, since: float = math.inf) -> list[LogSegment]:
        """Up to ``limit`` bytes that are new; empty when there are none yet, or when ``ended``.

        With ``since``, a monotonic time, the result of another cursor's read after that time may be reused.
        """
        with self._lock:
            while not self.ended and (files := self._open()) is not None:
                sealed = self._position.sealed
                # Bytes are written before the seal: only a read that begins after the seal was seen proves that none
                # are left.
                if segments := self._read(files, limit, math.inf if sealed else since):
                    self._idle = self._position.at_end
                    return segments
                self.ended = sealed
                if not sealed and not self._position.sealed and not self._check_files(files):
                    break
        return []

    def _read(self, files: LogFiles, limit: int, since: float) -> list[LogSegment]:
        if files.shared:
            return _recent.read(files, self._position, limit, since, self._merge_ns)
        return _read(files, self._position, limit, live=True, merge_ns=self._merge_ns)

    def _check_files(self, files: LogFiles) -> bool:
        """After an empty read: whether to try again. Only the second in a row checks the files themselves."""
        second, self._idle = self._idle, True
        if self._position.stale or (second and files.index_replaced()):
            self._position.stale = False
            self._files = None
            files.release()
            return True
        if second:
            self._position.sealed = files.sealed()  # a truncated log ends before its seal
            self.ended = files.log_removed()
        return self._position.sealed

    def _open(self) -> LogFiles | None:
        if self._files is None:
            try:
                self._files = LogFiles.acquire(self._path)
            except FileNotFoundError:
                return None
            self._position.record = find_record(self._files, self._position.offset)
        return self._files

    def close(self) -> None:
        """End here; waits for a read in another thread, which is short."""
        with self._lock:
            files, self._files = self._files, None
            self.ended = True
            if files is not None:
                files.release()


_ReadKey = tuple[int, int, int, int, int]  # the files' serial, offset, record, limit, merge_ns


class RecentReads:
    """The last live reads of logs with several followers: one reads the disk, and the others reuse its result."""

    def __init__(self, keep: int) -> None:
        self._keep = keep  # reads of READ_SIZE or less, so this bounds the memory
        self._reads: dict[_ReadKey, tuple[list[LogSegment], LogPosition, float]] = {}
        self._lock = threading.Lock()

    def read(
        self, files: LogFiles, position: LogPosition, limit: int, since: float, merge_ns: int = 0
    ) -> list[LogSegment]:
        """Like ``_read``, but the result may be older; it is empty only if there was nothing new at ``since``."""
        key = (files.serial, position.offset, position.record, limit, merge_ns)
        known = self._reads.get(key)
        if known is not None:
            segments, after, started = known
            position.offset, position.record, position.sealed = after.offset, after.record, after.sealed
            position.at_end = after.at_end and started >= since
            return segments.copy()
        if (look := files.empty_read) and look[:2] == (position.offset, position.record) and look[2] >= since:
            return []
        started = time.monotonic()
        segments = _read(files, position, limit, live=True, merge_ns=merge_ns)
        if segments and limit <= READ_SIZE:
            self._store(key, (segments.copy(), replace(position), started))
        elif not position.sealed and (position.offset, position.record) == key[1:3]:
            files.empty_read = (position.offset, position.record, started)
        return segments

    def _store(self, key: _ReadKey, value: tuple[list[LogSegment], LogPosition, float]) -> None:
        with self._lock:
            self._reads[key] = value
            if len(self._reads) > self._keep:
                del self._reads[next(iter(self._reads))]


def check_stream(stream: str) -> int:
    """The code of a stream's name, or InvalidInputError."""
    try:
        return STREAM_CODES[stream]
    except KeyError:
        raise InvalidInputError(f"unknown stream {stream!r}: use one of {', '.join(STREAM_CODES)}") from None


def repair_index(path: str | os.PathLike[str]) -> bool:
    """Rewrite the index of a log without a writer if it is missing, incomplete or out of order; True if it was.

    Keeps every valid record, assigns all other bytes to stdout, and keeps the seal.
    """
    index = Path(index_path(path))
    draft = index.with_name(index.name + ".repair")
    files = _acquire(path)
    try:
        with draft.open("wb") as out:
            out.writelines(_sound_records(files))
            os.fchmod(out.fileno(), 0o640)
    finally:
        files.release()
    sound = index.exists() and filecmp.cmp(draft, index, shallow=False)
    if sound:
        draft.unlink()
    else:
        draft.replace(index)
    return not sound


def _sound_records(files: LogFiles) -> Iterator[bytes]:
    position = LogPosition(offset=0, record=0)
    while spans := next_spans(files, position, files.size() + 1, live=False):
        for start, end, stream, time_ns in spans:
            yield RECORD.pack(start, end - start, stream, time_ns)
    if files.sealed():
        sealed_ns = files.records(files.record_count() - 1, 1)[0][3]
        yield RECORD.pack(files.size(), 0, END, sealed_ns)


def seal_log(path: str | os.PathLike[str]) -> bool:
    """Seal a log whose writer is dead, so that its followers end; True if it was not sealed yet.

    A log that does not exist is created empty: a follower may be waiting for it.
    """
    writer = LogWriter(path)
    try:
        with LogReader(path) as reader:
            if reader.ended():
                return False
        writer.end()
    finally:
        writer.close()
    return True


def unseal_log(path: str | os.PathLike[str]) -> None:
    """Remove the seal of a log that will be continued; new followers wait for more."""
    files = _acquire(path)
    try:
        while files.sealed():
            os.truncate(index_path(path), (files.record_count() - 1) * RECORD.size)
    finally:
        files.release()


def _acquire(path: str | os.PathLike[str]) -> LogFiles:
    try:
        return LogFiles.acquire(path)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no log at {os.fspath(path)}: check the path, or follow it to wait") from error


def _read(files: LogFiles, position: LogPosition, limit: int, *, live: bool, merge_ns: int = 0) -> list[LogSegment]:
    spans = next_spans(files, position, limit, live=live)
    if not spans:
        return []
    if merge_ns:
        spans = _merged(spans, merge_ns)
    first, last = spans[0][0], spans[-1][1]
    data = files.data(first, last)
    if len(data) < last - first:  # truncated since its size was read
        position.offset = first + len(data)
        position.record = find_record(files, position.offset)
        position.at_end = False
    return [
        LogSegment(offset=start, stream=STREAM_NAMES[stream], data=data[start - first : end - first], time_ns=time_ns)
        for start, end, stream, time_ns in spans
        if start < first + len(data)
    ]


def _merged(spans: list[Span], within_ns: int) -> list[Span]:
    """Join adjacent spans of one stream that began within ``within_ns``."""
    found = spans[:1]
    for start, end, stream, time_ns in spans[1:]:
        first, last, same, began_ns = found[-1]
        if stream == same and start == last and 0 <= time_ns - began_ns < within_ns:
            found[-1] = (first, end, same, began_ns)
        else:
            found.append((start, end, stream, time_ns))
    return found


def _checked(offset: int, limit: int) -> int:
    if offset < 0 or limit <= 0:
        raise InvalidInputError(f"offset {offset} must not be negative and limit {limit} must be above zero")
    return offset


_recent = RecentReads(keep=64)


def _reset_recent() -> None:
    """After a fork: a thread of the parent may have held the lock."""
    global _recent
    _recent = RecentReads(keep=64)


os.register_at_fork(after_in_child=_reset_recent)


def is_unused(log_path: Path) -> bool:
    """Whether the log is empty: created by an attempt that never started."""
    index = Path(index_path(log_path))
    return log_path.stat().st_size == 0 and (not index.exists() or index.stat().st_size == 0)
