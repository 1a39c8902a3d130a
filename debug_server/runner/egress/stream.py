"""A non-blocking socket with the bytes that were received and not yet consumed."""

from __future__ import annotations

import socket
import time

from debug_server.runner.egress.loop import Loop, TimedOut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

_BLOCK = 1 << 16
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 1 << 20


class Stream:
    """Reads and writes with deadlines. OSError and TimedOut end the connection that uses it."""

    __slots__ = ("buffer", "loop", "socket")

    def __init__(self, loop: Loop, connected: socket.socket) -> None:
        self.loop, self.socket = loop, connected
        self.buffer = bytearray()
        loop.watch(connected)

    def fill(self, deadline: float) -> Steps[bool]:
        """Add what comes to the buffer; False at the end of the stream."""
        while True:
            try:
                data = self.socket.recv(_BLOCK)
            except BlockingIOError:
                yield from self.loop.readable(self.socket, deadline)
            else:
                self.buffer += data
                return bool(data)

    def take(self, size: int) -> bytes:
        """Remove bytes from the front of the buffer."""
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    def send(self, data: bytes, deadline: float) -> Steps[None]:
        """Write all of it."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                yield from self.loop.writable(self.socket, deadline)

    def end_output(self) -> None:
        """Tell the other side that nothing more comes."""
        self.socket.shutdown(socket.SHUT_WR)

    def linger(self) -> Steps[None]:
        """End the output and discard some input: closing with unread input would destroy what we sent last."""
        deadline = time.monotonic() + _LINGER_SECONDS
        discarded = 0
        try:
            self.end_output()
            while discarded < _LINGER_BYTES and (yield from self.fill(deadline)):
                discarded += len(self.buffer)
                self.buffer.clear()
        except (OSError, TimedOut):
            return

    def close(self) -> None:
        """Close the socket."""
        self.loop.close_socket(self.socket)
