"""The output of the child: counted, limited and written to the log, or relayed."""

from __future__ import annotations

import errno
from collections import deque

from debug_server.runner.log_format import STDERR, STDOUT, SYSTEM, LogWriter

_TAIL_BYTES = 2048
_CHECK_EVERY = 1 << 20  # bytes written between two checks of the free space
_SHARE = 100  # the reserve is at most this part of the disk


class Output:
    """The log of one command, with counters and the output limit."""

    def __init__(self, writer: LogWriter, cap: int | None, reserve: int = 0) -> None:
        self._writer = writer
        self._cap = cap
        self._reserve = reserve  # bytes that must stay free on the disk
        self._unchecked_bytes = _CHECK_EVERY
        self.counts = {STDOUT: 0, STDERR: 0}
        self.dropped = 0
        self.tail = b""
        self._ended = False

    def append(self, stream: int, data: bytes) -> bool:
        """Write ``data``; False if it exceeds the limit (what fitted was written). OSError: nothing was written."""
        if self._cap is not None:
            room = self._cap - self.counts[STDOUT] - self.counts[STDERR]
            if len(data) > room:
                if room > 0:
                    self._write(stream, data[:room])
                self.dropped += len(data) - max(room, 0)
                return False
        self._write(stream, data)
        return True

    def _write(self, stream: int, data: bytes) -> None:
        self._unchecked_bytes += len(data)
        if self._reserve and self._unchecked_bytes >= _CHECK_EVERY:
            self._check_free_space()
        self._writer.write(stream, data)
        self.counts[stream] += len(data)
        self.tail = data[-_TAIL_BYTES:] if len(data) >= _TAIL_BYTES else (self.tail + data)[-_TAIL_BYTES:]

    def _check_free_space(self) -> None:
        disk = self._writer.disk()
        if disk.f_bavail * disk.f_frsize < min(self._reserve, disk.f_blocks * disk.f_frsize // _SHARE):
            raise OSError(errno.ENOSPC, "only the reserved disk space is left")
        self._unchecked_bytes = 0

    def note(self, text: str) -> None:
        """Write a line to the stream ``system``; skipped on a full disk, which must not prevent the command's end."""
        try:
            self._writer.write(SYSTEM, f"[debug-server] {text}\n".encode())
        except OSError:
            pass

    def raw_note(self, data: bytes) -> None:
        """Write output of a hook to the stream ``system``."""
        try:
            self._writer.write(SYSTEM, data)
        except OSError:
            pass

    def end(self) -> None:
        """Seal and close the log; may be repeated after a full disk."""
        if not self._ended:
            self._writer.end()
            self._writer.close()
            self._ended = True


class RelayBuffer:
    """Stdout that is sent to a client instead of the log, kept until the client acknowledges it.

    Bounded: when it is ``full``, the keeper stops reading and the child blocks. A client that reconnects sends its
    offset and gets the rest, so that no byte is lost.
    """

    CAPACITY = 1 << 20

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytes]] = deque()
        self.end = 0
        self.acknowledged = 0

    @property
    def full(self) -> bool:
        """Whether reading must pause."""
        return self.end - self.acknowledged >= self.CAPACITY

    def add(self, data: bytes) -> tuple[int, bytes]:
        """Add ``data``; returns it with its offset."""
        piece = (self.end, data)
        self._pieces.append(piece)
        self.end += len(data)
        return piece

    def acknowledge(self, offset: int) -> None:
        """The client has everything before ``offset``."""
        self.acknowledged = max(self.acknowledged, min(offset, self.end))
        while self._pieces and self._pieces[0][0] + len(self._pieces[0][1]) <= self.acknowledged:
            self._pieces.popleft()

    def since(self, offset: int) -> list[tuple[int, bytes]]:
        """The pieces from ``offset`` on."""
        return [
            (max(start, offset), data[max(offset - start, 0) :])
            for start, data in self._pieces
            if start + len(data) > offset
        ]
