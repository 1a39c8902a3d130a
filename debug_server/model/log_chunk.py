"""A piece of a command's log, as whoever watches it gets it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of one stream.

    ``data`` are the bytes as written. ``text`` is what can be read once they have come: it leaves out a character that
    is not complete yet, begins with the rest of one that was not, and has U+FFFD for bytes that are not UTF-8.
    """

    stream: str
    text: str
    timestamp: datetime  # UTC, when it was written
    offset: int = field(default=0, kw_only=True)  # of ``data`` in the log
    data: bytes = field(default=b"", kw_only=True)
