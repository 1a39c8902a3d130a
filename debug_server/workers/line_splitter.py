"""Splits a worker's stdout into lines, with a limit on the length of a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

MAX_LINE = 16 << 20
_END = 1024
_MAX_LOST = 64


class LineSplitter:
    """Bytes in, complete lines out; a line longer than ``limit`` is dropped and counted.

    ``lost`` has the beginning and the end of dropped lines, so that their request can be failed.
    """

    __slots__ = ("_head", "_parts", "_size", "_skipping", "_tail", "limit", "lost", "oversized")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []  # of the incomplete line; joined once
        self._size = 0
        self._skipping = False
        self._head = self._tail = b""  # of a line that is dropped
        self.oversized = 0
        self.lost: deque[bytes] = deque(maxlen=_MAX_LOST)

    @property
    def pending(self) -> int:
        """The size of the incomplete line in bytes."""
        return self._size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield the lines that they complete, without line ends."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            line = self._complete(piece)
            if line:
                yield line
        self._keep(rest)

    def _complete(self, piece: bytes) -> bytes:
        self._keep(piece)
        line = b"" if self._skipping else b"".join(self._parts).strip()
        if self._skipping:
            self.lost.append(self._head + b"\n" + self._tail)
        self._parts.clear()
        self._size = 0
        self._skipping = False
        return line

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            self._tail = (self._tail + piece[-_END:])[-_END:]
            return
        if not piece:
            return
        if self._size + len(piece) > self.limit:
            self.oversized += 1
            self._skipping = True
            self._head = (b"".join(self._parts) + piece[:_END])[:_END]
            self._tail = piece[-_END:]
            self._parts.clear()
            self._size = 0
            return
        self._parts.append(piece)
        self._size += len(piece)
