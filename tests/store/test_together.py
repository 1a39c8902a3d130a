"""Runs and events in one commit, and with them a schedule's due time: all of it or none, by one process only."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from debug_server.config.cron import parse_rule
from debug_server.engine.schedules import ScheduledAction, Scheduler
from debug_server.errors import NotFoundError, QueueFullError
from debug_server.model import Command, CommandSpec, DueTime, NewEvent, QueuedRun, SessionPlan
from debug_server.store import MetadataStore, open_store

from .conftest import Clock

TOLD = NewEvent(kind="dispatch.skipped", subject="dispatch", data={"reason": "no program"})


def _run(key: str = "runner:a", **more: Any) -> QueuedRun:
    return QueuedRun(spec=CommandSpec(["x"]), session_plan=SessionPlan(), queue_key=key, subject="dispatch", **more)


def _kinds(store: MetadataStore) -> list[str]:
    return [event.kind for event in store.events.read(subject="dispatch")]


def test_what_one_event_asks_for_is_there_as_a_whole_or_not_at_all(store: MetadataStore) -> None:
    """A step that fails leaves nothing of those before it; without it all are there, numbered as they were given."""
    with pytest.raises(NotFoundError):
        store.runs.add([_run(), TOLD, _run(repository_id=99)], max_pending=100)
    assert (store.queue.depth(), store.sessions.page(), store.events.read()) == (0, [], [])
    added = store.runs.add([_run(), TOLD, _run("runner:b")], max_pending=100)
    assert added is not None and added[1] == TOLD
    assert store.queue.depth() == len(store.sessions.page()) == 2
    assert _kinds(store) == ["command.pending", "dispatch.skipped", "command.pending"]


def test_a_full_queue_is_told_and_the_others_are_queued(store: MetadataStore) -> None:
    """The bound counts what the same commit added; without a word for it the whole commit is refused."""

    def refused(reason: str) -> NewEvent:
        return NewEvent(kind="dispatch.refused", subject="dispatch", data={"reason": reason})

    bound = partial(_run, key_max_pending=1)
    added = store.runs.add([bound(), bound(event_if_full=refused), bound("runner:b")], max_pending=100)
    assert added is not None and [isinstance(item, Command) for item in added] == [True, False, True]
    assert isinstance(added[1], NewEvent) and "the queue of runner:a is full" in added[1].data["reason"]
    assert _kinds(store) == ["command.pending", "dispatch.refused", "command.pending"]
    with pytest.raises(QueueFullError):
        store.runs.add([bound("runner:c"), bound("runner:c")], max_pending=100)
    assert store.queue.depth() == 2


def test_a_due_time_is_taken_once_with_what_is_done_about_it(store: MetadataStore, clock: Clock) -> None:
    """Whoever fails leaves it due, whoever comes second does nothing; a rule that stays keeps its time."""
    now = clock.time.replace(microsecond=0)
    store.schedules.set("dispatch:a", "Mon 08:00 UTC", now)
    store.schedules.set("dispatch:a", "Mon 08:00 UTC", now + timedelta(days=9))
    assert store.schedules.all()[0].next_at == now
    due = DueTime(schedule="dispatch:a", moment=now, since=now, next_at=now + timedelta(days=7))
    with pytest.raises(NotFoundError):
        store.runs.add([_run(repository_id=99)], max_pending=100, due=due)
    assert store.schedules.all()[0].next_at == now
    assert store.runs.add([_run()], max_pending=100, due=due) is not None
    assert store.runs.add([_run()], max_pending=100, due=due) is None
    assert store.queue.depth() == 1
    store.schedules.set("dispatch:a", "Tue 08:00 UTC", now + timedelta(days=8))
    assert store.schedules.all()[0].next_at == now + timedelta(days=8)
    store.schedules.drop("dispatch:a")
    assert store.schedules.all() == []


def test_two_schedulers_on_one_store_act_once(database_url: str) -> None:
    """Two processes' schedulers look at the same moment, week after week: each time is queued by one of them."""
    start = datetime(2026, 11, 16, 7, 0, tzinfo=UTC)
    weeks, moments = 25, threading.Barrier(2, timeout=60)

    def serve(name: str) -> int:
        acted = 0

        def act(due: DueTime) -> None:
            nonlocal acted
            run = _run(requested_by=name, metadata={"due": due.moment.isoformat()})
            acted += store.runs.add([run], max_pending=100, due=due) is not None

        with open_store(database_url) as store:
            scheduler = Scheduler(store, lambda: start)
            scheduler.declare("dispatch:", {"dispatch:plan": ScheduledAction(rule=parse_rule("Mon 08:00"), act=act)})
            for week in range(weeks):
                moments.wait()
                scheduler.run_due(start + timedelta(weeks=week, hours=2))
        return acted

    open_store(database_url).close()
    with ThreadPoolExecutor(2) as threads:
        acted = list(threads.map(serve, ("one", "two")))
    assert sum(acted) == weeks
    with open_store(database_url) as store:
        assert store.queue.depth() == weeks
