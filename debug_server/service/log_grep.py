"""Finds the lines of a block that match a regular expression, in linear time and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from debug_server.errors import InvalidInputError

_MEMORY = 1 << 19  # of a compiled pattern: it also bounds the time for each byte


class LineSearch:
    """A compiled pattern. RE2 does not backtrack, and other threads run while it searches."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        import re2  # only where it is needed

        options: Any = re2.Options()
        options.never_nl = options.never_capture = True
        options.log_errors = False
        options.case_sensitive = not ignore_case
        options.max_mem = _MEMORY
        try:
            self._pattern: Any = re2.compile(b"(?m)" + pattern.encode(), options=options)
        except re2.error as error:
            raise InvalidInputError(
                f"grep={pattern!r} is not a regular expression: {_reason(error)}; for the text itself, write "
                f"{re2.escape(pattern)}"
            ) from error

    def lines(self, block: bytes) -> Iterator[tuple[int, int]]:
        """(start, end) of each matching line of ``block``, in order."""
        searched, position = _as_utf8(block), 0
        while position < len(block) and (found := self._pattern.search(searched, position)) is not None:
            first, last = found.span()
            end = block.find(b"\n", last)
            end = len(block) if end < 0 else end
            start = block.rfind(b"\n", 0, first) + 1
            if start < len(block):  # else it is the empty match after the last line
                yield start, end
            position = end + 1


def _reason(error: Exception) -> str:
    given = error.args[0] if error.args else ""
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
    return text.replace("(?m)", "") or "it is too complex"


def _as_utf8(block: bytes) -> bytes:
    """The block with ``?`` for each byte that is no UTF-8, which a pattern could not match or pass over."""
    try:
        block.decode()
    except UnicodeDecodeError:
        return block.decode("utf-8", "surrogateescape").encode("utf-8", "replace")
    return block
