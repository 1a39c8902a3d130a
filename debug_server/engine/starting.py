"""A thread for each command; where none can be had, commands wait for one."""

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
    """Starts them, and remembers what could not be started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether something waits for a thread: then ``retry`` every now and then."""
        return bool(self._waiting)

    def start(self, work: Callable[[], None]) -> None:
        """Do something in a thread of its own, or let it wait for one."""
        with self._lock:
            if not self._waiting:
                if _started(work):
                    return
                _LOG.warning("no_thread_for_command")
            self._waiting.append(work)

    def retry(self) -> None:
        """Start what waits, in its order; returns a moment later if that is not possible yet."""
        with self._lock:
            while self._waiting and _started(self._waiting[0]):
                self._waiting.popleft()
        if self._waiting:
            time.sleep(_RETRY_SECONDS)


def _started(work: Callable[[], None]) -> bool:
    try:
        threading.Thread(target=work, name="command", daemon=True).start()
    except RuntimeError as error:
        if ResourcesExhaustedError.of(error) is None:
            raise
        return False
    return True
