"""The lines of one running command, read from its log by offset, a bounded piece at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from debug_server.dispatch.cursor import Offsets
from debug_server.runner.log_reader import LogCursor, LogSegment
from debug_server.runner.log_watch import watch_log

_LOOK_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16  # a line that is longer is told in pieces
_BULK_BYTES = 1 << 13  # more than this in one look is told as several lines at once
_LONGEST_CHARACTER = 4
_STREAMS = ("stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Whole lines of one stream; the last one of a stream may lack its end."""

    stream: str
    data: bytes
    offset: int
    end: int  # the log's offset after the last byte: its stream goes on from there
    timestamp: datetime


class _Pending:
    """The bytes of one stream that no line end has followed yet."""

    def __init__(self, stream: str, start: int) -> None:
        self.stream = stream
        self.sent = start  # bytes of this stream before here were told
        self._data = bytearray()
        self._first = start

    def take(self, segment: LogSegment) -> list[Lines]:
        """The lines that a segment completes."""
        skip = max(0, self.sent - segment.offset) if not self._data else 0
        data = segment.data[skip:]
        if not data:
            return []
        if not self._data:
            self._first = segment.offset + skip
        self._data += data
        cut = self._data.rfind(b"\n") + 1
        if not cut and len(self._data) >= _PIECE_BYTES and len(data) > _LONGEST_CHARACTER:
            cut = _before_split_character(self._data)
        return self._cut(cut, segment) if cut else []

    def rest(self, time_ns: int) -> list[Lines]:
        """What is left at the end."""
        last = LogSegment(offset=self._first, stream=self.stream, data=bytes(self._data), time_ns=time_ns)
        return self._cut(len(self._data), last) if self._data else []

    def _cut(self, cut: int, segment: LogSegment) -> list[Lines]:
        """Every cut lies in this segment, for what was kept before had no line end: so each piece's end is exact."""
        whole, self._data = bytes(self._data[:cut]), self._data[cut:]
        end = segment.end - len(self._data)
        moment = datetime.fromtimestamp(segment.time_ns / 1e9, UTC)
        found, offset, left = [], self._first, len(whole)
        for piece in [whole] if len(whole) > _BULK_BYTES else _split(whole):
            left -= len(piece)
            found.append(Lines(stream=self.stream, data=piece, offset=offset, end=end - left, timestamp=moment))
            offset = end - left
        self._first = self.sent = end
        return found


def _before_split_character(data: bytearray) -> int:
    """Where to cut so that no character is torn: before a last one that lacks bytes."""
    for back in range(1, _LONGEST_CHARACTER):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
        if byte < 0x80:
            break
    return len(data)


def _split(data: bytes) -> list[bytes]:
    pieces = [line + b"\n" for line in data.split(b"\n")]
    pieces[-1] = pieces[-1][:-1]
    return [piece for piece in pieces if piece]


class Tail:
    """Follows one log; never waits: ``woken`` is set when there may be more."""

    def __init__(self, path: str, offsets: Offsets, woken: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._cursor = LogCursor(path, min(offsets))
        self._watch = watch_log(path)
        self._watch.set_callback(lambda: loop.call_soon_threadsafe(woken.set))
        self._pending = {name: _Pending(name, start) for name, start in zip(_STREAMS, offsets, strict=True)}
        self._told = dict(zip(_STREAMS, offsets, strict=True))
        self._time_ns = 0

    @property
    def offsets(self) -> Offsets:
        """Where to go on."""
        return (self._told["stdout"], self._told["stderr"])

    def note(self, lines: Lines) -> None:
        """These were told."""
        self._told[lines.stream] = lines.end

    def read(self) -> list[Lines]:
        """The lines of the next look; empty when there is nothing new."""
        return [lines for segment in self._cursor.read(_LOOK_BYTES) for lines in self._take(segment)]

    def drain(self) -> list[Lines]:
        """As ``read`` for a log whose command has ended; at its end also what lacks a line end. Empty: that was all."""
        while segments := self._cursor.read(_LOOK_BYTES):
            if found := [lines for segment in segments for lines in self._take(segment)]:
                return found
        return [lines for pending in self._pending.values() for lines in pending.rest(self._time_ns)]

    def _take(self, segment: LogSegment) -> list[Lines]:
        self._time_ns = segment.time_ns
        pending = self._pending.get(segment.stream)
        return [] if pending is None else pending.take(segment)

    def close(self) -> None:
        """Let go of the log."""
        self._watch.close()
        self._cursor.close()
