"""Follows a log: its history, then new bytes, without gaps or repeats, until it is sealed."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from types import TracebackType
from typing import Self

from debug_server.errors import NotFoundError
from debug_server.runner.log_reader import READ_SIZE, LogCursor, LogSegment
from debug_server.runner.log_watch import watch_log

# The delay of a follower after a lost wake-up (a filesystem without inotify).
RECHECK_SECONDS = 1.0


class LogFollower:
    """An iterator over the segments of one log; ``close`` it from any thread to end it."""

    def __init__(self, path: str | os.PathLike[str], offset: int = 0, *, appear_within: float = 10.0) -> None:
        self._path = os.fspath(path)
        self._appear_within = appear_within
        self._appear_by = time.monotonic() + appear_within
        self._cursor = LogCursor(path, offset)
        self._watch = watch_log(path)
        self._since = math.inf
        self._closed = False
        self.completed = False  # the end of the log was reached
        self._read: deque[LogSegment] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogSegment:
        while not self._closed:
            if self._read:
                return self._read.popleft()
            self._read.extend(self._cursor.read(READ_SIZE, since=self._since))
            if self._cursor.ended:
                self.completed = not self._closed
                self.close()
            elif not self._read:
                self._wait()
        raise StopIteration

    def _wait(self) -> None:
        patience = RECHECK_SECONDS
        if not self._cursor.opened:
            patience = min(patience, self._appear_by - time.monotonic())
            if patience <= 0:
                self.close()
                raise NotFoundError(f"no log appeared at {self._path} within {self._appear_within:g} s: check the path")
        self._since = self._watch.noticed_at if self._watch.wait(patience) else math.inf

    def close(self) -> None:
        """End the iteration at once; a second call does nothing."""
        self._closed = True
        self._cursor.close()
        self._watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def follow(path: str | os.PathLike[str], offset: int = 0, *, appear_within: float = 10.0) -> LogFollower:
    """Follow the log at ``path``; if there is none, wait for it, and raise NotFoundError after ``appear_within`` s."""
    return LogFollower(path, offset, appear_within=appear_within)
