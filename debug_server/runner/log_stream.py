"""LogStream: writes a log in this process, with listeners, followers and replay."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from debug_server.errors import InvalidInputError
from debug_server.model import LogChunk
from debug_server.runner.log_chunk import ChunkDecoder
from debug_server.runner.log_follow import LogFollower
from debug_server.runner.log_format import LogWriter
from debug_server.runner.log_listener import ChunkCallback, LogListener, LogObservers, observe_log
from debug_server.runner.log_reader import LogReader, LogSegment, check_stream, repair_index, unseal_log
from debug_server.runner.log_watch import WakeUp

__all__ = ["LogChunk", "LogObservers", "LogStream", "LogSubscription", "follow_log", "observe_log"]

_LISTENER_BUDGET = 0.05  # seconds that one write waits for listeners
_CLOSE_BUDGET = 1.0
_MAX_WRITE = (1 << 32) - 1  # the largest length in a record


class LogSubscription:
    """An iterator over the chunks of one log, history first; ends with the log, or when closed from any thread."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._decoder = ChunkDecoder()
        self._tail: list[LogChunk] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogChunk:
        segment = next(self._follower, None)
        if segment is not None:
            return self._decoder.decode(segment)
        if self._tail is None:
            self._tail = self._decoder.flush() if self._follower.completed else []
        if self._tail:
            return self._tail.pop(0)
        raise StopIteration

    def close(self) -> None:
        """End the iteration; a second call does nothing."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def follow_log(path: str | os.PathLike[str], offset: int = 0, *, appear_within: float = 10.0) -> LogSubscription:
    """Follow a log that another process writes, from ``offset``; waits ``appear_within`` seconds for it to appear."""
    return LogSubscription(LogFollower(path, offset, appear_within=appear_within))


class LogStream:
    """The only writer of one log, with listeners; appends to an existing log.

    A write returns when the bytes are in the file and every healthy listener has processed them, or after 50 ms. Slow
    listeners are then lagging, and no write waits for them again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._decoder = ChunkDecoder()
        self._listeners: list[LogListener] = []
        self._closed = False
        self._guard = _lock_log(self.path)
        try:
            repair_index(self.path)
            unseal_log(self.path)
            self._writer = LogWriter(self.path)
        except BaseException:
            os.close(self._guard)
            raise

    def write(self, text: str | bytes, stream: str = "stdout") -> LogChunk:
        """Append; on OSError (a full disk) nothing was written, and the call can be repeated."""
        code = check_stream(stream)
        data = _encoded(text) if isinstance(text, str) else bytes(text)
        if len(data) > _MAX_WRITE:
            raise InvalidInputError(f"a write of {len(data)} bytes is too large: split it (limit 4 GiB)")
        with self._lock:
            self._check_open()
            offset = self._writer.offset
            end = self._writer.write(code, data)
            written = LogSegment(offset=offset, stream=stream, data=data, time_ns=self._writer.written_ns)
            chunk = self._decoder.decode(written)
            listeners = tuple(self._listeners)
        _wait_for_listeners(listeners, end)
        return chunk

    def add_listener(self, callback: ChunkCallback) -> Callable[[], None]:
        """Call ``callback`` with every chunk from now on, in its own thread; call the result to remove it."""
        with self._lock:
            self._check_open()
            listener = LogListener(self.path, callback, offset=self._writer.offset, wake_up=WakeUp())
            self._listeners.append(listener)
        return lambda: self._remove(listener)

    def _remove(self, listener: LogListener) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)
        listener.detach()
        listener.join(time.monotonic() + _LISTENER_BUDGET)

    def follow(self, offset: int = 0) -> LogSubscription:
        """History from ``offset``, then new chunks, until this stream is closed."""
        return follow_log(self.path, offset)

    def replay(self) -> Iterator[LogChunk]:
        """Everything that was written until now."""
        decoder = ChunkDecoder()
        with LogReader(self.path) as reader:
            for segment in reader.segments():
                yield decoder.decode(segment)
        yield from decoder.flush()

    def close(self) -> None:
        """Seal the log and let listeners finish within a second; a second call does nothing.

        On OSError (a full disk) everything is closed but the log is not sealed: ``seal_log`` does it later.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            listeners = tuple(self._listeners)
        try:
            self._writer.end()
        finally:
            self._writer.close()
            os.close(self._guard)
            LogObservers(listeners).finish(_CLOSE_BUDGET)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInputError(f"log {self.path} is closed: open another LogStream to append to it")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _lock_log(path: Path) -> int:
    """Lock the log for writing; the lock ends with the descriptor or the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise InvalidInputError(f"log {path} cannot be written: {error.strerror}; choose another path") from error
    try:
        # Not the index: a repair replaces that file, and the lock with it.
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(guard)
        raise InvalidInputError(f"log {path} already has a writer: share its LogStream") from error
    return guard


def _wait_for_listeners(listeners: tuple[LogListener, ...], end: int) -> None:
    deadline = time.monotonic() + _LISTENER_BUDGET
    for listener in listeners:
        listener.wake()
    for listener in listeners:
        listener.wait_for(end, deadline)


def _encoded(text: str) -> bytes:
    """UTF-8; surrogate escapes become their bytes, other lone surrogates become ``?``."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
