"""Starts a thread for each command; commands wait if no thread can be created."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from debug_server.errors import ResourcesExhaustedError

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 0.25
_IDLE_SECONDS = 2.0  # how long a thread waits for another command: starting one costs 0.1 ms

Work = Callable[[], None]


class CommandThreads:
    """Starts threads, and queues the work for which none could be created."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._idle = 0  # threads that wait for work and have not been given any
        self._given: SimpleQueue[Work | None] = SimpleQueue()  # None: end

    @property
    def waiting(self) -> bool:
        """Whether work waits for a thread: call ``retry`` until none does."""
        return bool(self._waiting)

    def start(self, work: Work) -> None:
        """Run ``work`` in a thread that does nothing else, or queue it until there is one."""
        with self._lock:
            if not self._waiting:
                if self._try_start(work):
                    return
                _LOG.warning("command_thread_not_created")
            self._waiting.append(work)

    def retry(self) -> None:
        """Start the queued work in order; sleeps briefly if no thread can be created yet."""
        with self._lock:
            while self._waiting and self._try_start(self._waiting[0]):
                self._waiting.popleft()
        if self._waiting:
            time.sleep(_RETRY_SECONDS)

    def end_idle(self) -> None:
        """End the threads that wait for work: each one counts against the limit of processes."""
        with self._lock:
            for _ in range(self._idle):
                self._given.put(None)
            self._idle = 0

    def _try_start(self, work: Work) -> bool:
        if self._idle:
            self._idle -= 1
            self._given.put(work)
            return True
        try:
            threading.Thread(target=self._serve, args=(work,), name="command", daemon=True).start()
        except RuntimeError as error:
            if ResourcesExhaustedError.of(error) is None:
                raise
            return False
        return True

    def _serve(self, work: Work | None) -> None:
        while work is not None:
            work()
            work = None  # so that it is not kept alive meanwhile
            work = self._next()

    def _next(self) -> Work | None:
        """The next work; None if there is none for a while."""
        with self._lock:
            self._idle += 1
        try:
            return self._given.get(timeout=_IDLE_SECONDS)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
            return self._given.get()  # it was given to the idle threads meanwhile
