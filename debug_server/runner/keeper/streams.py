"""Reads the child's stdout and stderr in pieces of 128 KiB into the log or the relay; a full disk blocks the child."""

from __future__ import annotations

import errno
import math
import os
import select
import time
from collections.abc import Callable, Mapping

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.control import Control
from debug_server.runner.keeper.loop import Loop
from debug_server.runner.keeper.output import Output, RelayBuffer
from debug_server.runner.keeper.prefork import READ_SIZE
from debug_server.runner.log_format import STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.keeper.masking import Mask
    from debug_server.runner.keeper.redaction import Redactor

_READS_PER_TURN = 8  # then handle timers and clients
_HELD_SECONDS = 1.0
DISK_RETRY, _DISK_PATIENCE = 0.2, 10.0
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


class Streams:
    """The open pipes and the destination of their bytes."""

    def __init__(
        self,
        loop: Loop,
        control: Control,
        output: Output,
        relay: RelayBuffer | None,
        filters: Mapping[int, Mask | Redactor],
    ) -> None:
        self._loop, self._control, self._output, self._relay = loop, control, output, relay
        self._filters = filters  # the redaction of each stream
        self._pipes: dict[int, int] = {}  # fd -> stream, while open
        self._held: tuple[int, bytes] | None = None  # read but not yet on disk
        self._disk_full_since: float | None = None
        self._relayed_fd = -1
        self._unreported = 0  # bytes of stderr that no attached client knows of
        self.terminal: int | None = None
        self.on_writable: Callable[[], None] | None = None  # for a terminal: writes queued input
        self.over_cap: Callable[[], None] = lambda: None
        self.over_disk: Callable[[str], None] = lambda _: None
        self.last_output = time.monotonic()

    def open(self, fd: int, stream: int) -> None:
        """Read ``fd`` until its end."""
        os.set_blocking(fd, False)
        self._pipes[fd] = stream
        if self._relay is not None and stream == STDOUT:
            self._relayed_fd = fd
        self._loop.watch(fd, self._ready)

    @property
    def done(self) -> bool:
        """Whether every pipe has ended and every byte is in the log."""
        return not self._pipes and self._held is None

    @property
    def blocked(self) -> bool:
        """Whether the disk is full."""
        return self._held is not None

    @property
    def paused(self) -> bool:
        """Whether the keeper does not read, so that the idle time does not count."""
        return self.blocked or self._relay_waits

    @property
    def _relay_waits(self) -> bool:
        return self._relay is not None and self._relay.full and self._relayed_fd in self._pipes

    @property
    def awaits_client(self) -> bool:
        """Whether relayed stdout waits for an attached client."""
        return self._relay_waits and any(client.attached for client in self._control.clients.values())

    def _ready(self, fd: int, events: int) -> None:
        if events & ~select.EPOLLOUT:
            self._pump(fd)
        if events & select.EPOLLOUT and self.on_writable is not None:
            self.on_writable()

    def _pump(self, fd: int) -> None:
        stream = self._pipes[fd]
        for _ in range(_READS_PER_TURN):
            data = _read(fd)
            if data is None:
                return
            if not data:
                if stream in self._filters and (last := self._filters[stream].end()):
                    self._store(stream, last)
                self._close(fd)
                return
            self.last_output = time.monotonic()
            if fd == self._relayed_fd:
                self._relay_output(data)
                return
            if not self._filter_and_store(stream, data) or len(data) < READ_SIZE:
                return

    def _filter_and_store(self, stream: int, data: bytes) -> bool:
        if stream not in self._filters:
            return self._store(stream, data)
        safe = self._filters[stream].feed(data)
        if safe and not self._store(stream, safe):
            return False
        if self._relay is not None:
            self._unreported += len(data)
            self.report_logged()
        return True

    def report_logged(self) -> None:
        """Tell attached clients how much stderr was logged; what no client was there for is told to the next one."""
        frame = frames.encode_json({"event": "logged", "stream": "stderr", "bytes": self._unreported})
        if self._unreported and self._send_attached(frame):
            self._unreported = 0

    @property
    def flush_at(self) -> float:
        """When held bytes, which may be the beginning of a secret, are written after a pause."""
        if not any(stream_filter.may_flush for stream_filter in self._filters.values()):
            return math.inf
        return self.last_output + _HELD_SECONDS

    def flush(self, *, idle: bool) -> None:
        """Write the held bytes. If ``idle`` (the command pauses), half of a secret or more stays held."""
        for stream, stream_filter in self._filters.items():
            if (
                self._held is None
                and (stream_filter.may_flush or not idle)
                and (data := stream_filter.flush_held() if idle else stream_filter.end())
            ):
                self._store(stream, data)

    def _store(self, stream: int, data: bytes) -> bool:
        try:
            if not self._output.append(stream, data):
                self.over_cap()
        except OSError as error:
            if error.errno not in _DISK_ERRORS:
                raise
            self._block_on_full_disk(stream, data)
            return False
        return True

    def _block_on_full_disk(self, stream: int, data: bytes) -> None:
        """Stop reading, so that the child blocks and nothing is lost; retry later."""
        self._held = (stream, data)
        self._disk_full_since = time.monotonic()
        for fd in self._pipes:
            self._loop.unwatch(fd)

    def retry_disk(self, now: float, *, patient: bool) -> None:
        """Retry the write; give up after 10 s, or at once if not ``patient``."""
        assert self._held is not None and self._disk_full_since is not None
        stream, data = self._held
        try:
            if not self._output.append(stream, data):
                self.over_cap()
        except OSError as error:
            if patient and now - self._disk_full_since < _DISK_PATIENCE:
                return
            self._output.dropped += len(data)
            self.over_disk(f"its log could not be written for {_DISK_PATIENCE:g} s: {error.strerror}")
        self._held = self._disk_full_since = None
        self.last_output = now  # until now the keeper did not read
        for fd in self._pipes:
            if not self._loop.watches(fd):  # pace_relay() may have done that
                self._loop.watch(fd, self._ready)

    def close(self) -> None:
        """Close the pipes that a process outside the tree holds open, and the terminal."""
        for fd in list(self._pipes):
            self._close(fd)
        if self.terminal is not None:
            os.close(self.terminal)

    def _close(self, fd: int) -> None:
        self._loop.unwatch(fd)
        del self._pipes[fd]
        if fd != self.terminal:
            os.close(fd)

    def _relay_output(self, data: bytes) -> None:
        assert self._relay is not None
        offset, piece = self._relay.add(data)
        self._output.counts[STDOUT] += len(data)
        self._send_attached(frames.encode_output(offset, piece))
        self.pace_relay()

    def _send_attached(self, frame: bytes) -> bool:
        """Send it to all attached clients; whether there was one."""
        attached = [client for client in self._control.clients.values() if client.attached]
        for client in attached:
            self._control.send_bytes(client, frame)
        return bool(attached)

    def pace_relay(self) -> None:
        """Read relayed stdout only while the relay buffer is not full."""
        fd = self._relayed_fd
        if self._relay is None or fd not in self._pipes:
            return
        if self._relay.full:
            self._loop.unwatch(fd)
        elif not self._loop.watches(fd):
            self.last_output = time.monotonic()  # until now the keeper did not read
            self._loop.watch(fd, self._ready)


def _read(fd: int) -> bytes | None:
    """None if there is no data yet, empty at the end."""
    try:
        return os.read(fd, READ_SIZE)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:  # a terminal that no process has open
            return b""
        raise
