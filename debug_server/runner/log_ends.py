"""Reads the first and the last bytes of each stream of a log, in bounded time and memory however long the log is."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress, islice

from debug_server.runner.log_format import RECORD, STDERR, STDOUT
from debug_server.runner.log_index import BATCH, LogFiles, LogPosition, Span, next_spans

# Blocks of records in which each end of a log is looked for, if one stream is quiet: 131,072 writes. Of the writes
# between both ends only the sizes are read, if they are not known.
_BLOCKS = 512
_EVERYTHING = 1 << 62
_READ_AHEAD = 64 << 10  # bytes, so that many small writes are one read
_COUNTED_RECORDS = 1 << 16  # whose sizes are read at once
_STREAMS = (STDOUT, STDERR)
_ONLY = {stream: bytes(code == stream for code in range(256)) for stream in _STREAMS}  # 1 for that stream, else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Adjacent bytes of one stream."""

    stream: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutRange:
    """Bytes between the first and the last ones, and the range of the log that has them."""

    size: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The first and the last bytes of one or of both streams; without ``left_out``, ``head`` has everything."""

    head: list[Piece]
    tail: list[Piece]
    size: int
    left_out: LeftOutRange | None


_NOTHING = Ends(head=[], tail=[], size=0, left_out=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The ends of the streams of a log."""

    stdout: Ends = _NOTHING
    stderr: Ends = _NOTHING
    merged: Ends = _NOTHING  # both in the order in which they were written


def read_ends(
    path: str | os.PathLike[str], keep: int, *, merged: bool, written: Mapping[int, int] | None = None
) -> LogEnds:
    """Up to ``keep`` bytes of each end of each stream, and with ``merged`` of both; FileNotFoundError without a log.

    ``written``: the full size of each stream where it is known. Else the sizes of all writes of a long log are added.
    """
    files = LogFiles.acquire(path)
    try:
        collectors = [_Collector(keep, STDOUT), _Collector(keep, STDERR)]
        if merged:
            collectors.append(_Collector(keep, *_STREAMS))
        _collect(files, collectors, keep, written)
        return LogEnds(
            **dict(zip(("stdout", "stderr", "merged"), (item.ends(files) for item in collectors), strict=False))
        )
    finally:
        files.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Adjacent records, and how many bytes of each stream they have."""

    end: LogPosition
    sizes: Mapping[int, int]
    examined: bool = True  # False for the records between the ends of the log


def _collect(files: LogFiles, collectors: list[_Collector], keep: int, written: Mapping[int, int] | None) -> None:
    position = LogPosition(offset=0, record=0)
    count = files.record_count()
    blocks = _blocks(files, count, keep, written) if count > BATCH else []
    shown = {id(block) for block in (*_with_first(blocks, keep), *_with_first(blocks[::-1], keep))}
    for block in blocks:
        if id(block) in shown:
            _add(next_spans(files, position, block.end.offset - position.offset, live=False), collectors)
        else:
            for stream in _STREAMS:
                for item in collectors:
                    item.skip(stream, block.sizes[stream])
        position = replace(block.end)
    for _ in range(_BLOCKS):  # the whole log if it is short, and what was written meanwhile
        if not (spans := next_spans(files, position, _EVERYTHING, live=False)):
            break
        _add(spans, collectors)


def _add(spans: list[Span], collectors: list[_Collector]) -> None:
    for start, end, stream, _ in spans:
        for item in collectors:
            item.add(stream, start, end)


def _with_first(blocks: list[_Block], keep: int) -> Iterator[_Block]:
    """The blocks with the first ``keep`` bytes of each stream, as far as they are examined."""
    for stream in _STREAMS:
        left = keep
        for block in blocks:
            if left > 0 and block.sizes[stream]:
                if not block.examined:
                    break
                yield block
                left -= block.sizes[stream]


def _blocks(files: LogFiles, count: int, keep: int, written: Mapping[int, int] | None) -> list[_Block]:
    """All records: the blocks with the ends of the streams, and what is between them as one."""
    # They do not add up if notes of ours are among the writes, or if the keeper died and did not count.
    if written is None or sum(written.values()) != files.size():
        written = _sizes(files, 0, count)
    left = dict(written)
    head = _examine(files, ((start, min(start + BATCH, count)) for start in range(0, count, BATCH)), left, keep)
    start = head[-1].end.record if head else 0
    tail = _examine(files, ((max(start, end - BATCH), end) for end in range(count, start, -BATCH)), left, keep)[::-1]
    end = max(start, count - len(tail) * BATCH)
    between = [_Block(end=_start_of(files, end), sizes=left, examined=False)] if end > start else []
    return [*head, *between, *tail]


def _examine(files: LogFiles, ranges: Iterable[tuple[int, int]], left: dict[int, int], keep: int) -> list[_Block]:
    """The blocks until each stream has ``keep`` bytes in them, or all its bytes; ``left`` is what they do not have."""
    wanted = {stream: min(keep, size) for stream, size in left.items()}
    found: list[_Block] = []
    for first, end in islice(ranges, _BLOCKS):
        if not any(wanted[stream] > 0 for stream in _STREAMS):
            break
        block = _block(files, first, end)
        found.append(block)
        for stream in _STREAMS:
            wanted[stream] -= block.sizes[stream]
            left[stream] -= block.sizes[stream]
    return found


def _block(files: LogFiles, first: int, end: int) -> _Block:
    raw = files.raw_records(first, end - first)
    return _Block(end=_start_of(files, end), sizes=_by_stream(raw))


def _start_of(files: LogFiles, record: int) -> LogPosition:
    """Where a record begins, or the end of the log after the last."""
    found = files.records(record - 1, 2)
    offset = found[1][0] if len(found) > 1 else found[0][0] + found[0][1]
    return LogPosition(offset=offset, record=record)


def _sizes(files: LogFiles, first: int, last: int) -> dict[int, int]:
    """The bytes of each stream in these records."""
    sizes = dict.fromkeys(_STREAMS, 0)
    for number in range(first, last, _COUNTED_RECORDS):
        raw = files.raw_records(number, min(_COUNTED_RECORDS, last - number))
        for stream, size in _by_stream(raw).items():
            sizes[stream] += size
    return sizes


def _by_stream(raw: bytes) -> dict[int, int]:
    """The bytes of each stream in records; fifty million records a second."""
    lengths, streams = memoryview(raw).cast("I")[2::6].tolist(), raw[12 :: RECORD.size]
    return {stream: sum(compress(lengths, streams.translate(_ONLY[stream]))) for stream in _STREAMS}


class _Collector:
    """Collects which parts of the log are the ends of some streams."""

    def __init__(self, keep: int, *streams: int) -> None:
        self._keep = keep
        self._streams = streams
        self._size = self._head_size = self._tail_size = 0
        self._head: list[tuple[int, int, int]] = []  # stream, start, end
        self._tail: deque[tuple[int, int, int]] = deque()

    def add(self, stream: int, start: int, end: int) -> None:
        """Add the next bytes of the log."""
        if stream not in self._streams:
            return
        self._size += end - start
        if taken := min(end - start, self._keep - self._head_size):
            self._head.append((stream, start, start + taken))
            self._head_size += taken
            start += taken
        if start < end and self._keep:
            self._tail.append((stream, max(start, end - self._keep), end))
            self._tail_size += end - max(start, end - self._keep)
            self._drop_excess()

    def _drop_excess(self) -> None:
        while (excess := self._tail_size - self._keep) > 0:
            stream, start, end = self._tail.popleft()
            dropped = min(excess, end - start)
            self._tail_size -= dropped
            if start + dropped < end:
                self._tail.appendleft((stream, start + dropped, end))

    def skip(self, stream: int, size: int) -> None:
        """Leave out the next bytes of a stream."""
        if stream in self._streams and size:
            self._size += size
            self._head_size = self._keep  # what follows is not next to the head
            self._tail.clear()
            self._tail_size = 0

    def ends(self, files: LogFiles) -> Ends:
        """Read the bytes."""
        if sum(end - start for _, start, end in (*self._head, *self._tail)) == self._size:
            return Ends(head=_pieces(files, [*self._head, *self._tail]), tail=[], size=self._size, left_out=None)
        head, tail = (
            _without_part_at_end(_pieces(files, self._head)),
            _without_part_at_start(_pieces(files, self._tail)),
        )
        shown = sum(len(piece.data) for piece in (*head, *tail))
        start = head[-1].offset + len(head[-1].data) if head else 0
        end = tail[0].offset if tail else files.size()
        left_out = LeftOutRange(size=self._size - shown, start=start, end=end)
        return Ends(head=head, tail=tail, size=self._size, left_out=left_out)


def _pieces(files: LogFiles, parts: Iterable[tuple[int, int, int]]) -> list[Piece]:
    """The bytes of parts in order, adjacent ones of one stream together."""
    joined: list[tuple[int, int, bytearray]] = []
    block, block_start = b"", 0
    for stream, start, end in parts:
        if not block_start <= start <= end <= block_start + len(block):
            block, block_start = files.data(start, max(end, start + _READ_AHEAD)), start
        data = block[start - block_start : end - block_start]
        if joined and joined[-1][0] == stream and joined[-1][1] + len(joined[-1][2]) == start:
            joined[-1][2].extend(data)
        else:
            joined.append((stream, start, bytearray(data)))
    return [Piece(stream=stream, offset=offset, data=bytes(data)) for stream, offset, data in joined]


def _without_part_at_end(pieces: list[Piece]) -> list[Piece]:
    """Without the first bytes of a character whose last bytes are left out."""
    if not pieces:
        return pieces
    last = pieces[-1]
    for back in range(1, min(4, len(last.data) + 1)):
        byte = last.data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:  # the first byte of a character: of 2, 3 or 4 bytes
            length = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return [*pieces[:-1], _cut(last, 0, len(last.data) - back)] if length > back else pieces
    return pieces


def _without_part_at_start(pieces: list[Piece]) -> list[Piece]:
    """Without the last bytes of a character whose first bytes are left out."""
    if not pieces:
        return pieces
    first = pieces[0]
    cut = 0
    while cut < min(3, len(first.data)) and 0x80 <= first.data[cut] < 0xC0:
        cut += 1
    return [_cut(first, cut, len(first.data)), *pieces[1:]]


def _cut(piece: Piece, start: int, end: int) -> Piece:
    return Piece(stream=piece.stream, offset=piece.offset + start, data=piece.data[start:end])
