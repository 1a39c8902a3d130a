"""Starts a thread for each command; commands wait if no thread can be created."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from debug_server.errors import ResourcesExhaustedError

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 0.25


class CommandThreads:
    """Starts threads, and queues the work for which none could be created."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether work waits for a thread: call ``retry`` until none does."""
        return bool(self._waiting)

    def start(self, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread of its own, or queue it until one can be created."""
        with self._lock:
            if not self._waiting:
                if _try_start(work):
                    return
                _LOG.warning("command_thread_not_created")
            self._waiting.append(work)

    def retry(self) -> None:
        """Start the queued work in order; sleeps briefly if no thread can be created yet."""
        with self._lock:
            while self._waiting and _try_start(self._waiting[0]):
                self._waiting.popleft()
        if self._waiting:
            time.sleep(_RETRY_SECONDS)


def _try_start(work: Callable[[], None]) -> bool:
    try:
        threading.Thread(target=work, name="command", daemon=True).start()
    except RuntimeError as error:
        if ResourcesExhaustedError.of(error) is None:
            raise
        return False
    return True
