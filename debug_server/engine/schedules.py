"""Schedules: a thread that acts when one is due, in one process only, and once for all the times that were missed.

    declare (rule, next time in the store) -> due -> act, which takes the time in the commit of what it does

Any number of processes may declare the same schedules: whoever commits first has the time. One that dies before its
commit took nothing, so the time stays due and the next one acts on it.
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
_LOOK_SECONDS = 5.0  # a clock may be set, and another process may declare: nothing is slept through for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A rule, and what to do when it is due; ``act`` hands the time to ``queue_together``, which takes it."""

    rule: Rule
    act: Callable[[DueTime], None]

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
                self._store.schedules.set(name, item.text, item.rule.after(now))
            for row in self._store.schedules.all():
                if row.name.startswith(group) and row.name not in planned:
                    self._store.schedules.drop(row.name)
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
                now = self._now()
                self.run_due(now)
                patience = self._patience(now)
            except DebugServerError as error:  # the store is away
                _LOG.warning("schedules_failed", extra={"error": str(error)})
                patience = _LOOK_SECONDS
            self._wake.wait(patience)

    def _patience(self, acted: datetime) -> float:
        """Until the next time; what was due at ``acted`` and still is has failed, and waits for the next look."""
        with self._lock:
            planned = self._planned
        if not planned:
            return _LOOK_SECONDS
        due = [row.next_at for row in self._store.schedules.all() if row.name in planned and row.next_at > acted]
        left = [(moment - self._now()).total_seconds() for moment in due]
        return max(0.01, min([_LOOK_SECONDS, *left]))

    def run_due(self, now: datetime) -> list[str]:
        """Act on what is due at ``now``; returns the names."""
        with self._lock:
            planned = dict(self._planned)
        if not planned:
            return []
        found = [row for row in self._store.schedules.all() if row.name in planned and row.next_at <= now]
        for row in found:
            rule = planned[row.name].rule
            moment = rule.latest(row.next_at, now)  # the last time that was missed is the one that still matters
            due = DueTime(schedule=row.name, moment=moment, since=row.next_at, next_at=rule.after(now))
            self._act(planned[row.name], due)
        return [row.name for row in found]

    def _act(self, item: Planned, due: DueTime) -> None:
        fields = {"schedule": due.schedule, "due": due.moment.isoformat()}
        try:
            item.act(due)
        except DebugServerError as error:  # it stays due
            _LOG.warning("schedule_failed", extra={**fields, "error": str(error)})
        except Exception:  # noqa: BLE001 - the action is foreign code: its defect must not end the other schedules
            _LOG.error("schedule_failed", extra=fields, exc_info=True)
