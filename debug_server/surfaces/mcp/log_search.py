"""Finds lines by text, in linear time: `|` separates alternatives, `.*` separates parts of an alternative.

Regular expressions are not supported, because one that backtracks could block the server.
"""

from __future__ import annotations

from debug_server.errors import InvalidInputError


class LineSearch:
    """A parsed search pattern."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        self._fold = ignore_case
        alternatives = (pattern.lower() if ignore_case else pattern).split("|")
        self._wanted = [[part.encode() for part in item.split(".*") if part] for item in alternatives]
        if not all(self._wanted):
            raise InvalidInputError(f"grep={pattern!r} has an empty alternative, which matches every line: remove it")

    def lines(self, block: bytes) -> list[tuple[int, int]]:
        """(start, end) of each matching line of ``block``, in order."""
        searched = block.lower() if self._fold else block
        found: dict[int, int] = {}
        for parts in self._wanted:
            position = searched.find(parts[0])
            while position >= 0:
                end = block.find(b"\n", position)
                end = len(block) if end < 0 else end
                if _appear_in_order(searched, parts, position, end):
                    found[block.rfind(b"\n", 0, position) + 1] = end
                position = searched.find(parts[0], end)
        return sorted(found.items())


def _appear_in_order(text: bytes, parts: list[bytes], position: int, end: int) -> bool:
    """Whether the parts come one after the other before ``end``."""
    for part in parts:
        position = text.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True
