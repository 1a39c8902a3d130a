"""What a person or a program reads: tables and colours on a terminal, plain text in pipes, JSON when asked for."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from debug_server.errors import DebugServerError, NotFoundError
from debug_server.surfaces.cli.standard_streams import write_stderr, write_stdout

_GOOD = ("succeeded", "completed", "running", "ok", "idle", "ready")
_BAD = ("failed", "cancelled", "missing", "degraded", "not ready")
_PAINT = {"good": "\x1b[32m", "bad": "\x1b[31m", "head": "\x1b[1m"}
_PLAIN = "\x1b[0m"
_C1_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # control characters that JSON does not escape
_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
_LISTS = {
    "artifact": "artifact list SESSION",
    "command": "history",
    "repository": "repo list",
    "session": "session list",
    "task": "tasks list",
    "token": "token list",
}
Column = tuple[str, Callable[[Any], object]]


class Output:
    """Prints a command's result."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def table(self, items: Sequence[Any], columns: Sequence[Column], *, next_after: int | None = None) -> None:
        """One line for each item; JSON has the items and where the rest of the list begins."""
        if self.as_json:
            self.json({"items": [plain(item) for item in items], "next_after": next_after})
            return
        rows = [[name.upper() for name, _ in columns]]
        rows += [[cell(value(item)) for _, value in columns] for item in items]
        self._aligned(rows, head=True)

    def record(self, value: Any) -> None:
        """One item, a line for each field."""
        data = plain(value)
        if self.as_json:
            self.json(data)
            return
        self._aligned([[name, cell(item)] for name, item in data.items() if item not in (None, {}, [])], head=False)

    def result(self, text: str, value: Any) -> None:
        """Print ``text``, or ``value`` with ``--json``."""
        if self.as_json:
            self.json(plain(value))
        else:
            write_line(without_controls(text))

    def json(self, data: object) -> None:
        """One line."""
        write_line(json.dumps(data, ensure_ascii=False).translate(_C1_ESCAPES))

    def _aligned(self, rows: list[list[str]], *, head: bool) -> None:
        widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))] if rows else []
        for index, row in enumerate(rows):
            padded = [text.ljust(width) for text, width in zip(row[:-1], widths, strict=False)]
            painted = [self._paint(text, head=head and index == 0) for text in [*padded, row[-1]]]
            write_line("  ".join(painted).rstrip())

    def _paint(self, text: str, *, head: bool) -> str:
        word = text.strip()
        kind = "head" if head else "good" if word in _GOOD else "bad" if word in _BAD else None
        return f"{_PAINT[kind]}{text}{_PLAIN}" if self._colour and kind else text


def write_line(text: str) -> None:
    """Write a line to stdout and flush; characters that stdout cannot encode are replaced."""
    write_stdout(f"{text}\n")


def print_notice(text: str) -> None:
    """Print a notice to stderr."""
    write_stderr(f"[debug-server] {without_controls(text)}")


def error_line(error: DebugServerError, *, as_json: bool) -> str:
    """An error as one line."""
    if as_json:
        return json.dumps({"error": {"code": error.code, "message": str(error)}})
    return without_controls(f"debug-server: {error}{_where_to_look(error)}")


def _where_to_look(error: DebugServerError) -> str:
    """The command that lists the rows of which the named one was not found."""
    lists = _LISTS.get(error.what or "") if isinstance(error, NotFoundError) else None
    if lists is None:
        return ""
    return f"{' See' if str(error).endswith('?') else ': see'} `debug-server {lists}`"


def progress(text: str) -> None:
    """Print what is being waited for, if stderr is a terminal."""
    if sys.stderr.isatty():
        print_notice(f"{text}…")


def plain(value: Any) -> Any:
    """A reply as JSON can hold it."""
    if (names := getattr(type(value), "model_fields", None)) is not None:  # a message; `run` does not load pydantic
        return {name: plain(getattr(value, name)) for name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def cell(value: object) -> str:
    """A value as a table cell, without line breaks and control characters."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return _printable(text)


def age_text(seconds: float) -> str:
    """A time span for a person, in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def without_controls(text: str) -> str:
    """Replace control characters, because the text may contain names from others that could control the terminal."""
    return "\n".join("\t".join(map(_printable, line.split("\t"))) for line in text.split("\n"))


def _printable(text: str) -> str:
    return "".join(item if _is_harmless(item) else "\N{REPLACEMENT CHARACTER}" for item in text)


def _is_harmless(character: str) -> bool:
    """Printable, or a space of any width, or a joiner as in some scripts and emoji."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"
