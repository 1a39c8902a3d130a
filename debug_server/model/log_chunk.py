"""LogChunk: a range of one stream of a log, as observers receive it (``LogPiece`` on the wire)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of one stream.

    ``data`` has the bytes as written. ``text`` has the characters that these bytes complete: a character that is split
    between chunks is in the text of the later chunk. Invalid UTF-8 is replaced by U+FFFD.
    """

    stream: str
    text: str
    timestamp: datetime  # UTC, when it was written
    offset: int = field(default=0, kw_only=True)  # of ``data`` in the log
    data: bytes = field(default=b"", kw_only=True)
