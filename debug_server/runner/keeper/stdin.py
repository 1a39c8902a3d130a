"""The child's stdin: queued writes, each id applied once, answered when the pipe has taken it."""

from __future__ import annotations

import os
import select
from collections import OrderedDict, deque

from debug_server.runner.keeper.control import Client, Control
from debug_server.runner.keeper.loop import Loop

_REMEMBERED = 1024
_CAPACITY = 1 << 20
_END_OF_FILE = b"\x04"  # ^D: the end-of-file character of a terminal


class Stdin:
    """Writes to one descriptor without blocking."""

    def __init__(self, fd: int, *, terminal: bool, loop: Loop, control: Control) -> None:
        os.set_blocking(fd, False)
        self._fd: int | None = fd
        self._terminal = terminal
        self._loop = loop
        self._answer = control.answer
        self._queue: deque[tuple[Client | None, str, bytes]] = deque()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._closing = False
        self._line_begun = False  # a terminal accepts the end of input only at the start of a line

    def write(self, client: Client, write_id: str, data: bytes) -> None:
        """Queue ``data`` unless this id has been applied before."""
        if write_id in self._seen:
            self._answer(client, {"ok": True, "write": write_id, "repeated": True})
        elif self._fd is None or self._closing:
            self._answer(client, {"ok": False, "write": write_id, "error": "stdin is closed"})
        elif self._queue and sum(len(item[2]) for item in self._queue) + len(data) > _CAPACITY:
            self._answer(client, {"ok": False, "write": write_id, "error": "stdin is full", "retry": True})
        else:
            self._seen[write_id] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            self._queue.append((client, write_id, data))
            self.pump()

    def feed(self, data: bytes) -> None:
        """Write all of the child's input, then close."""
        self._queue.append((None, "", data))
        self.close()

    def pump(self) -> None:
        """Write what the pipe accepts."""
        while self._fd is not None and self._queue:
            client, write_id, data = self._queue[0]
            try:
                written = os.write(self._fd, data) if data else 0
            except BlockingIOError:
                self._watch_writable(True)
                return
            except OSError as error:  # the child closed its end
                self._fail(error)
                return
            if written:
                self._line_begun = data[written - 1 : written] != b"\n"
            if written < len(data):
                self._queue[0] = (client, write_id, data[written:])
                continue
            self._queue.popleft()
            if client is not None:
                self._answer(client, {"ok": True, "write": write_id})
        self._watch_writable(False)
        if self._closing:
            self._close()

    def _watch_writable(self, enabled: bool) -> None:
        """Start or stop watching for room in the pipe; a terminal's one descriptor is already watched for output."""
        fd = self._fd
        if fd is None:
            return
        if self._terminal:
            if self._loop.watches(fd):
                self._loop.change(fd, select.EPOLLIN | (select.EPOLLOUT if enabled else 0))
        elif enabled and not self._loop.watches(fd):
            self._loop.watch(fd, lambda *_: self.pump(), select.EPOLLOUT)
        elif not enabled:
            self._loop.unwatch(fd)

    def close(self) -> None:
        """Close once everything queued is written."""
        self._closing = True
        self.pump()

    def discard(self) -> None:
        """The command has ended: nothing more can be written."""
        self._queue.clear()
        if self._fd is not None and not self._terminal:
            self._watch_writable(False)
            os.close(self._fd)
        self._fd = None

    def _fail(self, error: OSError) -> None:
        for client, write_id, _ in self._queue:
            if client is not None:
                self._answer(client, {"ok": False, "write": write_id, "error": f"stdin: {error.strerror}"})
        self._queue.clear()
        self._watch_writable(False)
        self._close()

    def _close(self) -> None:
        if self._fd is None:
            return
        if not self._terminal:
            os.close(self._fd)
        elif not self._send_end_of_file(self._fd):
            return
        self._fd = None

    def _send_end_of_file(self, terminal: int) -> bool:
        """Within a line the first ^D only sends the line; False if the terminal accepts no more yet."""
        try:
            if self._line_begun:
                os.write(terminal, _END_OF_FILE)
                self._line_begun = False
            os.write(terminal, _END_OF_FILE)
        except BlockingIOError:
            self._watch_writable(True)
            return False
        except OSError:
            pass  # no process has the other side of the terminal open
        return True
