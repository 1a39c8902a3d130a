"""Schedules: a thread performs an action when its schedule is due, in one process only; missed times count once.

    declare (rule, next time in the store) -> due -> act, which claims the due time in the commit of its action

Any number of processes may declare the same schedules: the first commit claims the due time. If a process dies before
its commit, the time stays due and the next process acts on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from debug_server.config.cron import Rule
from debug_server.errors import DebugServerError
from debug_server.model import DueTime
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_MAX_SLEEP_SECONDS = 5.0  # the longest sleep: the clock may be set, and other processes may declare schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledAction:
    """A rule and its action; ``act`` passes the due time to ``queue_atomically``, which claims it."""

    rule: Rule
    act: Callable[[DueTime], None]

    @property
    def text(self) -> str:
        """The rule as the store keeps it; a changed text starts a new schedule."""
        return f"{self.rule.text} {self.rule.zone.key}"


class Scheduler:
    """The schedules of one process; starts with the engine."""

    def __init__(self, store: MetadataStore, now: Callable[[], datetime] | None = None) -> None:
        self._store = store
        self._now = now or (lambda: datetime.now(UTC))
        self._actions: Mapping[str, ScheduledAction] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def declare(self, group: str, planned: Mapping[str, ScheduledAction]) -> None:
        """Replace the schedules whose names begin with ``group``."""
        for name in planned:
            if not name.startswith(group):
                raise ValueError(name)
        now = self._now()
        with self._lock:
            for name, item in planned.items():
                self._store.schedules.set(name, item.text, item.rule.after(now))
            for row in self._store.schedules.all():
                if row.name.startswith(group) and row.name not in planned:
                    self._store.schedules.drop(row.name)
            kept = {name: item for name, item in self._actions.items() if not name.startswith(group)}
            self._actions = {**kept, **planned}
        self._wake.set()

    def start(self) -> None:
        """Start the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="schedules", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current action."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_MAX_SLEEP_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                now = self._now()
                self.run_due(now)
                pause = self._seconds_until_next(now)
            except DebugServerError as error:  # the store is unavailable
                _LOG.warning("schedules_failed", extra={"error": str(error)})
                pause = _MAX_SLEEP_SECONDS
            self._wake.wait(pause)

    def _seconds_until_next(self, acted: datetime) -> float:
        """Seconds until the next due time; an action that failed at ``acted`` is retried in the next round."""
        with self._lock:
            planned = self._actions
        if not planned:
            return _MAX_SLEEP_SECONDS
        due = [row.next_at for row in self._store.schedules.all() if row.name in planned and row.next_at > acted]
        left = [(moment - self._now()).total_seconds() for moment in due]
        return max(0.01, min([_MAX_SLEEP_SECONDS, *left]))

    def run_due(self, now: datetime) -> list[str]:
        """Act on what is due at ``now``; returns the names."""
        with self._lock:
            planned = dict(self._actions)
        if not planned:
            return []
        found = [row for row in self._store.schedules.all() if row.name in planned and row.next_at <= now]
        for row in found:
            rule = planned[row.name].rule
            moment = rule.latest(row.next_at, now)  # if several times were missed, only the last one counts
            due = DueTime(schedule=row.name, moment=moment, since=row.next_at, next_at=rule.after(now))
            self._act(planned[row.name], due)
        return [row.name for row in found]

    def _act(self, item: ScheduledAction, due: DueTime) -> None:
        fields = {"schedule": due.schedule, "due": due.moment.isoformat()}
        try:
            item.act(due)
        except DebugServerError as error:  # it stays due
            _LOG.warning("schedule_failed", extra={**fields, "error": str(error)})
        except Exception:  # noqa: BLE001 - a bug in one action must not stop the other schedules
            _LOG.error("schedule_failed", extra=fields, exc_info=True)
