"""Work that nobody waits for: done one after the other by a thread that is there only while there is some."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from debug_server.errors import WorktreePoolError

_LOG = logging.getLogger(__name__)


class Chores:
    """A queue of jobs; one that fails is told to the operator, and whoever needs it done tries again."""

    def __init__(self, name: str, *, daemon: bool) -> None:
        self._name = name
        self._daemon = daemon  # else the program does not end before they are done
        self._guard = threading.Lock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._working = False

    def add(self, job: Callable[[], object]) -> None:
        """Have it done after those that came before it."""
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
            except (OSError, WorktreePoolError) as error:  # a full disk, say
                _LOG.warning("chore_failed", extra={"chore": self._name, "error": str(error)})
            except Exception:  # noqa: BLE001 - the boundary of one job: without it those behind it are never done
                _LOG.error("chore_failed", extra={"chore": self._name}, exc_info=True)
