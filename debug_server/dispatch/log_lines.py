"""The lines of one command's output, read from its log by offset in bounded parts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from debug_server import messages as m
from debug_server.service.logs import OpenLog

_READ_BYTES = 1 << 16
_LONGEST_LINE = 1 << 16  # a longer line is sent in pieces
_BULK_BYTES = 1 << 13  # more than this in one read is sent as several lines at once
_LONGEST_CHARACTER = 4
_STREAMS = ("stdout", "stderr")

Offsets = tuple[int, int]  # of stdout and of stderr, in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Whole lines of one stream; the last line of a stream may have no line end."""

    stream: str
    data: bytes
    offset: int
    end: int  # the offset in the log after the last byte, where the stream continues
    timestamp: datetime


class _Stream:
    """One stream of the log: its bytes that no line end has followed yet."""

    def __init__(self, name: str, start: int) -> None:
        self.name = name
        self.returned = start  # bytes of this stream before this offset were returned
        self._data = bytearray()  # not returned yet
        self._first = start  # the offset of its first byte
        self._timestamp: datetime | None = None

    def take(self, piece: m.LogPiece) -> list[Lines]:
        """The lines that a piece completes."""
        self._timestamp = piece.timestamp
        skip = max(0, self.returned - piece.offset) if not self._data else 0
        data = piece.data[skip:]
        if not data:
            return []
        if not self._data:
            self._first = piece.offset + skip
        self._data += data
        cut = self._data.rfind(b"\n") + 1
        if not cut and len(self._data) >= _LONGEST_LINE and len(data) > _LONGEST_CHARACTER:
            cut = _before_split_character(self._data)
        return self._cut(cut, piece.offset + len(piece.data)) if cut else []

    def rest(self) -> list[Lines]:
        """What is left at the end of the log."""
        return self._cut(len(self._data), self._first + len(self._data)) if self._data else []

    def _cut(self, cut: int, end_of_data: int) -> list[Lines]:
        """Return the first ``cut`` bytes.

        Every cut lies in the newest piece, because older bytes had no line end: so the end of each result is exact.
        """
        assert self._timestamp is not None
        whole, self._data = bytes(self._data[:cut]), self._data[cut:]
        end = end_of_data - len(self._data)
        found, offset, left = [], self._first, len(whole)
        for data in [whole] if len(whole) > _BULK_BYTES else _split(whole):
            left -= len(data)
            found.append(Lines(stream=self.name, data=data, offset=offset, end=end - left, timestamp=self._timestamp))
            offset = end - left
        self._first = self.returned = end
        return found


def _before_split_character(data: bytearray) -> int:
    """Where to cut so that no character is split: before a last character that lacks bytes."""
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


class LineReader:
    """Reads the lines of one log from the given offsets of its streams; never waits."""

    def __init__(self, log: OpenLog, offsets: Offsets) -> None:
        """``log`` must be open at the smaller of the offsets."""
        self._log = log
        self._streams = {name: _Stream(name, start) for name, start in zip(_STREAMS, offsets, strict=True)}
        self._sent = dict(zip(_STREAMS, offsets, strict=True))

    @property
    def offsets(self) -> Offsets:
        """Where to continue, after the lines that were marked as sent."""
        return (self._sent["stdout"], self._sent["stderr"])

    def mark_sent(self, lines: Lines) -> None:
        """These lines were sent to the watcher."""
        self._sent[lines.stream] = lines.end

    def read(self) -> list[Lines]:
        """The lines of the next part of the log; empty when there is nothing new."""
        return [lines for piece in self._log.read(_READ_BYTES) for lines in self._take(piece)]

    def drain(self) -> list[Lines]:
        """Like ``read`` for a log whose command has ended; an unfinished last line comes last. Empty: that was all."""
        while pieces := self._log.read(_READ_BYTES):
            if found := [lines for piece in pieces for lines in self._take(piece)]:
                return found
        return [lines for stream in self._streams.values() for lines in stream.rest()]

    def _take(self, piece: m.LogPiece) -> list[Lines]:
        stream = self._streams.get(piece.stream)
        return [] if stream is None else stream.take(piece)

    def close(self) -> None:
        """Close the log."""
        self._log.close()
