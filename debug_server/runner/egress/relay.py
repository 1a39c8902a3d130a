"""Bytes from one socket to another, until one side ends or nothing moves for too long."""

from __future__ import annotations

import fcntl
import os
import time

from debug_server.runner.egress.bounds import Bounds
from debug_server.runner.egress.loop import Loop, TimedOut
from debug_server.runner.egress.stream import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from debug_server.runner.egress.loop import Steps

    Wait = Callable[[socket.socket, float], Steps[None]]

_BLOCK = 1 << 18
_PIPE = 1 << 20
_SET_PIPE_SIZE = 1031
_FLAGS = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
_BULK = 1 << 20  # bytes without a pause: much is to be moved
_PAUSE_SECONDS = 1.0
_ROUNDS = 16  # before others get their turn


class Activity:
    """When one connection last moved a byte, in either direction."""

    __slots__ = ("idle", "last")

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.last = time.monotonic()

    def touch(self) -> None:
        """A byte has moved."""
        self.last = time.monotonic()

    def deadline(self) -> float:
        """Until when one must move."""
        return self.last + self.idle


class Mover:
    """Moves bytes through one block of memory for all connections; those that move much get a pipe in the kernel.

    A pipe of a megabyte costs a third less CPU time than the block. An ordinary user may have some 64 of them.
    """

    def __init__(self, loop: Loop, bounds: Bounds) -> None:
        self._loop = loop
        self._block = memoryview(bytearray(_BLOCK))
        self._pipes = bounds.pipes

    def move(self, source: Stream, sink: Stream, activity: Activity) -> Steps[None]:
        """Move everything up to the end of ``source``, and end the output of ``sink``."""
        yield from self.send(sink, source.take(len(source.buffer)), activity)
        ended = False
        while not ended:
            ended = yield from self._copy(source, sink, activity)
            if not ended:
                ended = yield from self._splice(source, sink, activity)
        sink.end_output()

    def send(self, sink: Stream, data: bytes, activity: Activity) -> Steps[None]:
        """Write all of it; the other direction may keep the connection alive meanwhile."""
        view = memoryview(data)
        while view:
            try:
                view = view[sink.socket.send(view) :]
                activity.touch()
            except BlockingIOError:
                yield from _patiently(self._loop.writable, sink, activity)

    def _copy(self, source: Stream, sink: Stream, activity: Activity) -> Steps[bool]:
        """Until much comes without a pause, or the end, which is True."""
        moved = rounds = 0
        while moved < _BULK or not self._pipes:
            try:
                size = source.socket.recv_into(self._block)
            except BlockingIOError:
                paused_at = time.monotonic()
                yield from _patiently(self._loop.readable, source, activity)
                if time.monotonic() > paused_at + _PAUSE_SECONDS:
                    moved = 0
                continue
            if size == 0:
                return True
            activity.touch()
            moved += size
            try:
                sent = sink.socket.send(self._block[:size])
            except BlockingIOError:
                sent = 0
            if sent < size:  # others use the block while this one waits
                yield from self.send(sink, bytes(self._block[sent:size]), activity)
            rounds += 1
            if rounds % _ROUNDS == 0:
                yield None
        return False

    def _splice(self, source: Stream, sink: Stream, activity: Activity) -> Steps[bool]:
        """Until a pause, or the end, which is True; nothing happens if no pipe can be had."""
        pipe = _large_pipe()
        if pipe is None:
            self._pipes = 0  # the user's limit: from now on the block must do
            return False
        self._pipes -= 1
        try:
            return (yield from self._splice_all(source, sink, activity, *pipe))
        finally:
            self._pipes += 1
            for each in pipe:
                os.close(each)

    def _splice_all(self, source: Stream, sink: Stream, activity: Activity, reader: int, writer: int) -> Steps[bool]:
        rounds = 0
        while True:
            try:
                size = os.splice(source.socket.fileno(), writer, _PIPE, flags=_FLAGS)
            except BlockingIOError:
                try:
                    yield from self._loop.readable(source.socket, time.monotonic() + _PAUSE_SECONDS)
                except TimedOut:
                    return False
                continue
            if size == 0:
                return True
            while size:
                try:
                    size -= os.splice(reader, sink.socket.fileno(), size, flags=_FLAGS)
                    activity.touch()
                except BlockingIOError:
                    yield from _patiently(self._loop.writable, sink, activity)
            rounds += 1
            if rounds % _ROUNDS == 0:
                yield None


def _large_pipe() -> tuple[int, int] | None:
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.fcntl(writer, _SET_PIPE_SIZE, _PIPE)
    except OSError:
        os.close(reader)
        os.close(writer)
        return None
    return reader, writer


def _patiently(wait: Wait, stream: Stream, activity: Activity) -> Steps[None]:
    try:
        yield from wait(stream.socket, activity.deadline())
    except TimedOut:
        if time.monotonic() >= activity.deadline():
            raise
