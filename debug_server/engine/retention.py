"""Removes closed sessions that are older than ``[history]`` says: their rows, logs and artifacts.

Nothing is removed by default. It is done a page at a time, files before the rows that name them, so that it may be
interrupted at any point and be continued by the next round or by another process. An open session is never touched.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from debug_server.config import HistoryConfig
from debug_server.disk import remove_tree
from debug_server.engine.elapsed import ElapsedTime
from debug_server.engine.run_or_log import run_or_log
from debug_server.runner.log_format import index_path
from debug_server.runner.settings import RunnerPaths
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_ROUND_SECONDS = 5.0  # other maintenance must not wait longer: the next round continues


class Retention:
    """Removes the old history of one store."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        paths: RunnerPaths,
        settings: HistoryConfig,
        stopped: Callable[[], bool],
        elapsed: ElapsedTime | None = None,
    ) -> None:
        """``stopped`` is asked after each page."""
        self._store = store
        self._history = store.history
        self._paths = paths
        self._settings = settings
        self._stopped = stopped
        self._elapsed = elapsed or ElapsedTime()  # a clock that is set must not make everything old
        self._failed: set[int] = set()  # sessions whose files cannot be removed: reported once

    def remove_old(self) -> int:
        """Remove old sessions until none is left or the time is up; returns how many were removed."""
        if self._settings.keep_seconds is None and self._settings.keep_commands is None:
            return 0
        deadline = time.monotonic() + _ROUND_SECONDS
        removed = 0
        for session_id in self._old_sessions():
            removed += run_or_log("history_not_removed", partial(self._remove, session_id, deadline)) or 0
            if self._is_over(deadline):
                break
        if removed:
            _LOG.info("history_removed", extra={"sessions": removed})
        return removed

    def _is_over(self, deadline: float) -> bool:
        return self._stopped() or time.monotonic() > deadline

    def _old_sessions(self) -> Iterator[int]:
        is_old = self._rule()
        kept = self._history.kept() | self._failed
        after = 0
        while page := self._history.oldest(after):
            for number, opened_at, closed_at in page:
                if not is_old(opened_at):
                    return  # sessions with higher numbers were opened later
                if closed_at is not None and is_old(closed_at) and number not in kept:
                    yield number
            after = page[-1][0]

    def _rule(self) -> Callable[[datetime], bool]:
        """Whether what was closed at a time is removed: it is too old, or all commands that are kept came after it."""
        seconds, commands = self._settings.keep_seconds, self._settings.keep_commands
        age = None if seconds is None else timedelta(seconds=seconds)
        kept_since = None if commands is None else self._history.oldest_of_newest(commands)

        def is_old(closed_at: datetime) -> bool:
            too_old = age is not None and self._elapsed.since(closed_at) > age
            return too_old or (kept_since is not None and closed_at < kept_since)

        return is_old

    def _remove(self, session_id: int, deadline: float) -> bool:
        """Remove a session; False if it is in use, or the rest is left to the next round."""
        if self._history.is_in_use(session_id):
            return False
        while self._history.remove_events(session_id):
            if self._is_over(deadline):
                return False
        while commands := self._history.logs(session_id):
            for _, path in commands:
                _remove_log(path)
            self._history.remove_commands([number for number, _ in commands])
            if self._is_over(deadline):
                return False
        if not self._remove_folders(session_id):
            return False
        self._history.remove_session(session_id)
        return True

    def _remove_folders(self, session_id: int) -> bool:
        """Remove the folder of the logs, unless others put files there, and that of the artifacts."""
        with suppress(OSError):
            (self._paths.logs_dir.absolute() / str(session_id)).rmdir()
        left = remove_tree(self._paths.artifacts_root.absolute() / "collected" / str(session_id))
        if left:
            self._failed.add(session_id)
            fields = {"session_id": session_id, "error": "; ".join(map(str, left))}
            _LOG.warning("history_not_removed", extra=fields)
        return not left


def _remove_log(path: str | None) -> None:
    if path is not None:
        for name in (path, index_path(path)):
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(name)  # noqa: PTH108 - faster than Path.unlink, for a million files
