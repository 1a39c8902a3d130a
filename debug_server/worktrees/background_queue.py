"""A queue of jobs that one background thread runs in order; the thread exists only while there are jobs."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from debug_server.errors import WorktreePoolError

_LOG = logging.getLogger(__name__)


class BackgroundQueue:
    """Runs jobs in order; one that fails is logged and not retried."""

    def __init__(self, name: str, *, daemon: bool) -> None:
        self._name = name
        self._daemon = daemon  # False: the program ends only after the last job
        self._guard = threading.Lock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._working = False

    def add(self, job: Callable[[], object]) -> None:
        """Run ``job`` after those added before it."""
        with self._guard:
            self._jobs.append(job)
            if not self._working:
                self._working = True
                threading.Thread(target=self._work, name=self._name, daemon=self._daemon).start()

    def _work(self) -> None:
        while True:
            with self._guard:
                if not self._jobs:
                    self._working = False
                    return
                job = self._jobs.popleft()
            try:
                job()
            except (OSError, WorktreePoolError) as error:  # for example a full disk
                _LOG.warning("background_job_failed", extra={"queue": self._name, "error": str(error)})
            except Exception:  # noqa: BLE001 - the boundary of one job: the jobs behind it must still run
                _LOG.error("background_job_failed", extra={"queue": self._name}, exc_info=True)
