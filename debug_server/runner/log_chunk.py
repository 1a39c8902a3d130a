"""Log segments as text: decoded per stream, never across a split character."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from datetime import UTC, datetime

from debug_server.runner.log_reader import LogSegment

_Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of one stream.

    ``data`` are the bytes as written. ``text`` is their decoded form: a character that is split between chunks is in
    the later one, and bytes that are not UTF-8 become U+FFFD.
    """

    stream: str
    text: str
    timestamp: datetime  # UTC, when it was written
    offset: int = field(default=0, kw_only=True)  # of ``data`` in the log
    data: bytes = field(default=b"", kw_only=True)


class ChunkDecoder:
    """Turns the segments of one log into chunks."""

    def __init__(self) -> None:
        self._streams: dict[str, codecs.IncrementalDecoder] = {}
        self._last: dict[str, LogSegment] = {}

    def decode(self, segment: LogSegment) -> LogChunk:
        """The chunk of a segment; segments come in the log's order."""
        decoder = self._streams.get(segment.stream)
        if decoder is None:
            decoder = self._streams[segment.stream] = _Decoder("replace")
        self._last[segment.stream] = segment
        return _chunk(segment, decoder.decode(segment.data))

    def flush(self) -> list[LogChunk]:
        """At the end of the log: a chunk without data for each stream that ends within a character."""
        tails = ((self._last[stream], decoder.decode(b"", True)) for stream, decoder in self._streams.items())
        return [_chunk(_after(segment), text) for segment, text in tails if text]


def _chunk(segment: LogSegment, text: str) -> LogChunk:
    written = datetime.fromtimestamp(segment.time_ns / 1e9, UTC)
    return LogChunk(segment.stream, text, written, offset=segment.offset, data=segment.data)


def _after(segment: LogSegment) -> LogSegment:
    return LogSegment(offset=segment.end, stream=segment.stream, data=b"", time_ns=segment.time_ns)
