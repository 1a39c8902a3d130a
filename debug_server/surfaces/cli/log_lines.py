"""Prints logs: as raw bytes, as lines with time and stream, or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum

from debug_server.messages import LogPiece
from debug_server.surfaces.cli.output import write_line
from debug_server.surfaces.cli.standard_streams import write_bytes

_KEPT_BYTES = 1 << 16  # longer than any reason
_MAX_LINE = 1 << 20  # a program that never ends its line must not fill our memory


class RawLog:
    """Writes bytes to the stream that they came from, unless its reader has closed it."""

    def __init__(self) -> None:
        self._closed: set[int] = set()
        self._system = b""  # the last bytes of the system stream

    def has_shown(self, text: str) -> bool:
        """Whether the last bytes of the system stream contain ``text``."""
        return text.encode() in self._system

    def write(self, piece: LogPiece) -> None:
        """One piece."""
        self.write_bytes(piece.stream, piece.data)

    def write_bytes(self, stream: str, data: bytes) -> None:
        """Bytes of one stream."""
        if stream == "system":
            self._system = (self._system + data)[-_KEPT_BYTES:]
        target = 1 if stream == "stdout" else 2
        if target not in self._closed:
            try:
                write_bytes(target, data)
            except BrokenPipeError:
                self._closed.add(target)

    def finish(self) -> None:
        """Does nothing: raw output is not buffered."""


class LineLog:
    """Assembles pieces into lines, for each stream; replaces invalid UTF-8, but never a character split by pieces."""

    def __init__(self, show: Callable[[LogPiece, str], None]) -> None:
        self._show = show
        self._partial: dict[tuple[int, str], LogPiece] = {}

    def write(self, piece: LogPiece) -> None:
        """One piece."""
        key = (piece.command_id, piece.stream)
        before = self._partial.pop(key, None)
        start = before or piece
        data = before.data + piece.data if before else piece.data
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines):
            self._show(start if number == 0 else piece, line.decode("utf-8", "replace"))
        if len(rest) > _MAX_LINE:
            self._show(piece, rest.decode("utf-8", "replace"))
        elif rest:
            origin = piece if lines else start
            self._partial[key] = LogPiece(
                offset=origin.offset,
                stream=origin.stream,
                data=rest,
                timestamp=origin.timestamp,
                command_id=origin.command_id,
            )

    def finish(self) -> None:
        """Show lines that were never ended."""
        for piece in self._partial.values():
            self._show(piece, piece.data.decode("utf-8", "replace"))
        self._partial.clear()


Log = RawLog | LineLog


class LogFormat(StrEnum):
    """How lines are shown."""

    TEXT = "text"
    JSON = "json"


def log_for(format_: LogFormat, *, raw: bool) -> Log:
    """The log writer for the options."""
    if raw:
        return RawLog()
    return json_log() if format_ is LogFormat.JSON else text_log()


def show(pieces: Iterable[LogPiece], log: Log) -> None:
    """Write every piece, and then unfinished lines."""
    try:
        for piece in pieces:
            log.write(piece)
    finally:
        log.finish()


def text_log() -> LineLog:
    """``[time] STREAM: message``."""
    return LineLog(lambda piece, line: write_line(f"[{_iso(piece.timestamp)}] {piece.stream.upper()}: {line}"))


def json_log() -> LineLog:
    """One object for each line."""
    return LineLog(lambda piece, line: write_line(json.dumps(_object(piece, line), ensure_ascii=False)))


def _object(piece: LogPiece, line: str) -> dict[str, object]:
    return {
        "message": line,
        "stream": piece.stream,
        "timestamp": _iso(piece.timestamp),
        "command_id": piece.command_id,
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat()
