"""Records when tokens and sessions were last used, in a thread, so that requests never wait for the write.

While the store is unavailable nothing is written: a lost write only makes a time less accurate.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Set

from debug_server.errors import DebugServerError
from debug_server.store.tokens import USE_RECORD_INTERVAL

_LOG = logging.getLogger(__name__)
_MAX_CACHED_ROWS = 10_000
_CLOSE_SECONDS = 1.0


class LastUsed:
    """Collects uses of rows; one thread at a time writes all collected ones in one commit."""

    def __init__(self, what: str, write: Callable[[Set[int]], None]) -> None:
        self._what = what  # "token", "session"
        self._write = write
        self._lock = threading.Lock()
        # Time of the last attempt by row, so that a failing store is not retried for each request.
        self._tried: dict[int, float] = {}
        self._waiting: set[int] = set()
        self._writer: threading.Thread | None = None

    def record(self, row_id: int) -> None:
        """Record a use of the row with this id; returns at once."""
        now = time.monotonic()
        with self._lock:
            if now - self._tried.get(row_id, -USE_RECORD_INTERVAL) < USE_RECORD_INTERVAL:
                return
            if len(self._tried) >= _MAX_CACHED_ROWS:
                self._tried.clear()
            self._tried[row_id] = now
            self._waiting.add(row_id)
            if self._writer is not None:
                return
            writer = threading.Thread(target=self._write_all, name=f"{self._what}-uses", daemon=True)
            try:
                writer.start()
            except RuntimeError:  # no thread can be created: the next use retries
                return
            self._writer = writer

    def close(self) -> None:
        """Wait briefly for the current write."""
        if (writer := self._writer) is not None:
            writer.join(_CLOSE_SECONDS)

    def _write_all(self) -> None:
        while True:
            with self._lock:
                numbers, self._waiting = self._waiting, set()
                if not numbers:
                    self._writer = None
                    return
            try:
                self._write(numbers)
            except DebugServerError as error:
                fields = {"what": self._what, "rows": len(numbers), "error": str(error)}
                _LOG.info("last_use_not_recorded", extra=fields)
