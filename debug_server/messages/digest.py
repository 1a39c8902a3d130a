"""The digest of a log: request, reply, and the reply as text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from debug_server.messages.base import Reply
from debug_server.messages.commands import CommandRef

CHARACTERS_PER_TOKEN = 4
DEFAULT_TOKENS = 1000

MaxTokens = Annotated[
    int, Field(ge=200, le=100_000, description="Most tokens of the digest, four characters of JSON each.")
]


class DigestLog(CommandRef):
    """Request for the digest of a log as it is now."""

    max_tokens: MaxTokens = DEFAULT_TOKENS


class Excerpt(Reply):
    """A line of the log, cut if it is long, and its range of bytes."""

    offset: int
    end: int
    text: str


class FoldedLine(Excerpt):
    """A run of lines that differ only in digits: the first line, and the last one if it differs."""

    count: int
    last: str | None


class FailingTest(Reply):
    """A failed test."""

    id: str
    framework: str
    offset: int
    end: int


class TracebackHead(Excerpt):
    """The exception (``text``), and where it was raised; the range of bytes is the traceback's."""

    where: str | None


class Omitted(Reply):
    """What a digest leaves out."""

    lines: int  # of those that were read
    failing: int
    tracebacks: int
    repeats: int
    skipped_bytes: int  # not read, because it would have taken too long


class Digest(Reply):
    """The digest of a log."""

    start: int
    end: int
    lines: int
    text: str | None  # the whole log, if it is short; head and tail are empty then
    first_error: Excerpt | None
    failing: list[FailingTest]
    failing_count: int  # of all failing tests, counted up to a limit; ``failing`` lists fewer
    tracebacks: list[TracebackHead]
    repeats: list[FoldedLine]
    head: list[FoldedLine]
    tail: list[FoldedLine]
    omitted: Omitted

    def as_text(self) -> str:
        """The digest for a reader; ``@`` marks an offset in the log."""
        if self.end == self.start:
            return "The log is empty."
        parts = [_errors(self), _failing(self), _tracebacks(self)]
        if self.text is not None:
            parts.append("log:\n" + self.text.rstrip("\n"))
        else:
            parts += [_folded("repeated lines", self.repeats), _folded("head", self.head), _folded("tail", self.tail)]
            parts.append(_left_out(self))
        return "\n".join(part for part in parts if part)


def _errors(digest: Digest) -> str:
    error = digest.first_error
    return f"first error @{error.offset}: {error.text}" if error is not None else ""


def _failing(digest: Digest) -> str:
    if not digest.failing:
        return ""
    lines = [f"  @{item.offset} {item.id}" for item in digest.failing]
    return f"failing tests ({digest.failing_count}):\n" + "\n".join(lines)


def _tracebacks(digest: Digest) -> str:
    lines = [f"  @{item.offset} {item.where or '?'}: {item.text}" for item in digest.tracebacks]
    return "tracebacks:\n" + "\n".join(lines) if lines else ""


def _folded(title: str, items: list[FoldedLine]) -> str:
    return f"{title}:\n" + "\n".join(_line(item) for item in items) if items else ""


def _line(item: FoldedLine) -> str:
    if item.count == 1:
        return f"  @{item.offset} {item.text}"
    last = f" … {item.last}" if item.last else ""
    return f"  @{item.offset} {item.text}{last} (x{item.count})"


def _left_out(digest: Digest) -> str:
    omitted = digest.omitted
    named = {
        "line": omitted.lines,
        "failing test": omitted.failing,
        "traceback": omitted.tracebacks,
        "repeated line": omitted.repeats,
        "unread byte": omitted.skipped_bytes,
    }
    counts = ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in named.items() if count)
    return f"({digest.lines} lines, {digest.end - digest.start} bytes; left out: {counts or 'nothing'})"
