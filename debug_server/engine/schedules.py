"""Schedules: a thread that acts when one is due, in one process only, and once for all the times that were missed.

    declare (rule, next time in the store) -> due -> take (compare-and-set) -> act -> settle

A taker that dies before it settled leaves the time owed: the next one acts on it again, so an action must know by the
time it is given whether it was done before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from debug_server.engine.cron import Rule
from debug_server.errors import DebugServerError
from debug_server.model import Schedule
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0  # a clock may be set, and another process may declare: nothing is slept through for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A rule, and what to do when it is due; ``act`` is called with the time that was due, perhaps twice for one."""

    rule: Rule
    act: Callable[[datetime], None]

    @property
    def text(self) -> str:
        """What the store remembers of the rule: another text begins anew."""
        return f"{self.rule.text} {self.rule.zone.key}"


class Scheduler:
    """The schedules of one process; begins when the engine does."""

    def __init__(self, store: MetadataStore, now: Callable[[], datetime] | None = None) -> None:
        self._store = store
        self._now = now or (lambda: datetime.now(UTC))
        self._planned: Mapping[str, Planned] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def declare(self, group: str, planned: Mapping[str, Planned]) -> None:
        """These are the schedules whose names begin with ``group``; others of the group are forgotten."""
        for name in planned:
            if not name.startswith(group):
                raise ValueError(name)
        now = self._now()
        with self._lock:
            for name, item in planned.items():
                self._store.set_schedule(name, item.text, item.rule.after(now))
            for row in self._store.list_schedules():
                if row.name.startswith(group) and row.name not in planned:
                    self._store.drop_schedule(row.name)
            kept = {name: item for name, item in self._planned.items() if not name.startswith(group)}
            self._planned = {**kept, **planned}
        self._wake.set()

    def start(self) -> None:
        """Begin."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="schedules", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the action that is under way."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LOOK_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                self.run_due(self._now())
                patience = self._patience()
            except DebugServerError as error:  # the store is away, or full: what is due stays due, so do not spin
                _LOG.warning("schedules_failed", extra={"error": str(error)})
                patience = _LOOK_SECONDS
            self._wake.wait(patience)

    def _patience(self) -> float:
        with self._lock:
            planned = self._planned
        if not planned:
            return _LOOK_SECONDS
        due = [row.next_at for row in self._store.list_schedules() if row.name in planned]
        left = [(moment - self._now()).total_seconds() for moment in due]
        return max(0.01, min([_LOOK_SECONDS, *left]))

    def run_due(self, now: datetime) -> list[str]:
        """Act on what is due at ``now``; returns the names."""
        with self._lock:
            planned = dict(self._planned)
        if not planned:
            return []
        done = []
        for row in self._store.list_schedules():
            item = planned.get(row.name)
            if item is None:
                continue
            if row.owed_at is not None:
                self._act(row.name, item, row.owed_at)
            if row.next_at <= now and (due := self._take(row, item, now)) is not None:
                self._act(row.name, item, due)
                done.append(row.name)
        return done

    def _take(self, row: Schedule, item: Planned, now: datetime) -> datetime | None:
        """The last time that was missed stands for all of them: it is the one that still matters."""
        due = item.rule.latest(row.next_at, now)
        return due if self._store.take_due(row, owed_at=due, next_at=item.rule.after(now)) else None

    def _act(self, name: str, item: Planned, due: datetime) -> None:
        try:
            item.act(due)
        except DebugServerError as error:  # owed until it works
            _LOG.warning("schedule_failed", extra={"schedule": name, "due": due.isoformat(), "error": str(error)})
        except Exception:  # noqa: BLE001 - the action is foreign code: its defect must not end the other schedules
            _LOG.error("schedule_failed", extra={"schedule": name, "due": due.isoformat()}, exc_info=True)
        else:
            self._store.settle_due(name, due)
