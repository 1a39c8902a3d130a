"""Callbacks for the chunks of a log, each in its own thread with its own cursor.

    healthy --too slow for the writer--> lagging --end, detach, timeout--> done
       |                                    |
       +---------- raises, end, detach -----+-----------------------------> done

A callback never delays the log or its writer for long. A slow one continues to read the file at its own pace; one that
raises is detached, and the warning has the offset from which to read again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from debug_server.model import LogChunk
from debug_server.runner.log_chunk import ChunkDecoder
from debug_server.runner.log_follow import RECHECK_SECONDS
from debug_server.runner.log_reader import READ_SIZE, LogCursor
from debug_server.runner.log_watch import WakeUp, watch_log

_LOG = logging.getLogger(__name__)

ChunkCallback = Callable[[LogChunk], object]


class LogListener:
    """One callback and its thread."""

    def __init__(self, path: str | os.PathLike[str], callback: ChunkCallback, *, offset: int, wake_up: WakeUp) -> None:
        self._path = os.fspath(path)
        self._callback = callback
        self._wake_up = wake_up
        self._cursor = LogCursor(path, offset)
        self._decoder = ChunkDecoder()
        self._progress = threading.Condition()
        self._consumed = offset  # the callback has returned for every byte below
        self._done = False
        self._finishing = False  # stop at the present end
        self._detached = False  # stop before the next call
        self.lagging = False  # the writer no longer waits for it
        self._thread = threading.Thread(target=self._run, name="log-listener", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check for new data."""
        self._wake_up.wake()

    def wait_for(self, offset: int, deadline: float) -> None:
        """Wait until ``deadline`` for the callback to process everything below ``offset``; else mark it as lagging."""
        if self.lagging or threading.current_thread() is self._thread:
            return
        with self._progress:
            met = self._progress.wait_for(lambda: self._done or self._consumed >= offset, deadline - time.monotonic())
        if not met:
            self.lagging = True
            self._report("slow", event="log_listener_lagging")

    def finish(self, deadline: float) -> bool:
        """Let it process what is in the log now, then stop it; False if ``deadline`` came first."""
        self._finishing = True
        self.wake()
        self.join(deadline)
        if not self._done:
            self.detach()
            self._report("unfinished")
        return self._done

    def detach(self) -> None:
        """Stop it: a running call is not interrupted, and no other follows."""
        self._detached = True
        self.wake()

    def join(self, deadline: float) -> None:
        """Wait for it to stop, unless this is the callback itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        try:
            self._listen()
        except Exception as error:  # noqa: BLE001 - the callback is foreign code; the boundary of its thread
            self._report(f"raised {type(error).__name__}: {error}", failed=True)
        finally:
            self._cursor.close()
            self._wake_up.close()
            with self._progress:
                self._done = True
                self._progress.notify_all()

    def _listen(self) -> None:
        while not self._detached:
            last_look = self._finishing
            segments = self._cursor.read(READ_SIZE)
            for segment in segments:
                if self._detached:
                    return
                self._callback(self._decoder.decode(segment))
                self._advance(segment.end)
            if not segments:
                if self._cursor.ended or last_look:
                    break
                self._wake_up.wait(RECHECK_SECONDS)
        for chunk in [] if self._detached else self._decoder.flush():
            self._callback(chunk)

    def _advance(self, offset: int) -> None:
        with self._progress:
            self._consumed = offset
            self._progress.notify_all()

    def _report(self, reason: str, *, event: str = "log_listener_detached", failed: bool = False) -> None:
        fields = {"path": self._path, "offset": self._consumed, "reason": reason}
        _LOG.warning(event, extra=fields, exc_info=failed)


class LogObservers:
    """Callbacks for a log that another process writes."""

    def __init__(self, listeners: Sequence[LogListener]) -> None:
        self._listeners = listeners

    def finish(self, timeout: float) -> bool:
        """Let each process what is left, then detach all; False if some had not finished after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        finished = [listener.finish(deadline) for listener in self._listeners]
        return all(finished)


def observe_log(path: str | os.PathLike[str], callbacks: Sequence[ChunkCallback], offset: int = 0) -> LogObservers:
    """Call each callback with every chunk of the log, which may not exist yet; call ``finish`` at the end."""
    return LogObservers([LogListener(path, callback, offset=offset, wake_up=watch_log(path)) for callback in callbacks])
