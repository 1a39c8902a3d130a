"""Cuts a worker's stdout into lines, however it arrives, and keeps one endless line from filling the memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

MAX_LINE = 16 << 20
_END = 1024
_MOST_LOST = 64


class LineCutter:
    """Bytes in, whole lines out; a line beyond ``limit`` is thrown away while it comes, and counted.

    ``lost`` has the beginning and the end of such lines, so that whoever misses one can be told.
    """

    __slots__ = ("_head", "_parts", "_size", "_skipping", "_tail", "limit", "lost", "oversized")

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []  # of the line that is not complete: joined once, not grown piece by piece
        self._size = 0
        self._skipping = False
        self._head = self._tail = b""  # of a line that is thrown away
        self.oversized = 0
        self.lost: deque[bytes] = deque(maxlen=_MOST_LOST)

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield the lines they complete, without their ends."""
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
