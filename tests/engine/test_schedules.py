"""Schedules: due once, missed ones caught up once, and due until an action has taken its time."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from debug_server.config.cron import parse_rule
from debug_server.engine.schedules import ScheduledAction, Scheduler
from debug_server.errors import UnavailableError
from debug_server.model import DueTime
from debug_server.store import MetadataStore, open_store
from tests.running import eventually

START = datetime(2026, 11, 16, 7, 0, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


def _planned(store: MetadataStore, acted: list[datetime]) -> dict[str, ScheduledAction]:
    def act(due: DueTime) -> None:
        if store.runs.add([], due=due) is not None:
            acted.append(due.moment)

    return {"dispatch:plan": ScheduledAction(rule=parse_rule("Mon 08:00"), act=act)}


def test_missed_times_are_caught_up_once(tmp_path: Path) -> None:
    """After three weeks away the last missed time stands for all three; then the next is the coming Monday's."""
    clock, acted = Clock(), list[datetime]()
    with open_store(str(tmp_path / "m.db")) as store:
        Scheduler(store, clock).declare("dispatch:", _planned(store, acted))
        clock.time += timedelta(weeks=3)
        again = Scheduler(store, clock)
        again.declare("dispatch:", _planned(store, acted))
        assert again.run_due(clock.time) == ["dispatch:plan"]
        assert again.run_due(clock.time) == []
        assert acted == [datetime(2026, 11, 30, 8, 0, tzinfo=UTC)]
        assert store.schedules.all()[0].next_at == datetime(2026, 12, 7, 8, 0, tzinfo=UTC)


def test_a_time_is_due_until_its_action_succeeds(tmp_path: Path) -> None:
    """An action that fails is tried again with the same time; then it is over."""
    clock, tried, acted, failing = Clock(), list[datetime](), list[datetime](), [True]
    with open_store(str(tmp_path / "m.db")) as store:
        good = _planned(store, acted)["dispatch:plan"]

        def act(due: DueTime) -> None:
            tried.append(due.moment)
            if failing:
                raise UnavailableError("not now")
            good.act(due)

        scheduler = Scheduler(store, clock)
        scheduler.declare("dispatch:", {"dispatch:plan": ScheduledAction(rule=good.rule, act=act)})
        clock.time += timedelta(hours=2)
        scheduler.run_due(clock.time)
        failing.clear()
        scheduler.run_due(clock.time)
        scheduler.run_due(clock.time)
        assert tried == [datetime(2026, 11, 16, 8, 0, tzinfo=UTC)] * 2
        assert acted == tried[:1]


def test_what_is_no_longer_declared_is_forgotten(tmp_path: Path) -> None:
    """Another part's schedules stay."""
    acted: list[datetime] = []
    with open_store(str(tmp_path / "m.db")) as store:
        scheduler = Scheduler(store, Clock())
        scheduler.declare("other:", {"other:x": _planned(store, acted)["dispatch:plan"]})
        scheduler.declare("dispatch:", _planned(store, acted))
        scheduler.declare("dispatch:", {})
        assert [row.name for row in store.schedules.all()] == ["other:x"]
        with pytest.raises(ValueError, match="other:x"):
            scheduler.declare("dispatch:", {"other:x": _planned(store, acted)["dispatch:plan"]})


def test_the_thread_acts_by_itself(tmp_path: Path) -> None:
    """A schedule that is due is acted on without anybody calling, also one declared after the start."""
    clock, acted = Clock(), list[datetime]()
    with open_store(str(tmp_path / "m.db")) as store:
        Scheduler(store, clock).declare("dispatch:", _planned(store, acted))
        clock.time += timedelta(hours=2)
        scheduler = Scheduler(store, clock)
        scheduler.start()
        try:
            scheduler.declare("dispatch:", _planned(store, acted))
            eventually(lambda: acted, what="the action")
        finally:
            scheduler.stop()


def test_a_defect_in_one_action_does_not_end_the_others(tmp_path: Path) -> None:
    """An action that fails with an error that is none of ours stays due; those behind it are acted on."""
    clock, acted = Clock(), list[datetime]()

    def broken(due: DueTime) -> None:
        raise ZeroDivisionError(due)

    with open_store(str(tmp_path / "m.db")) as store:
        scheduler = Scheduler(store, clock)
        first = ScheduledAction(rule=parse_rule("Mon 08:00"), act=broken)
        scheduler.declare("dispatch:", {"dispatch:broken": first, **_planned(store, acted)})
        clock.time += timedelta(hours=2)
        assert scheduler.run_due(clock.time) == ["dispatch:broken", "dispatch:plan"]
        assert acted == [datetime(2026, 11, 16, 8, 0, tzinfo=UTC)]
        assert [row.next_at > clock.time for row in store.schedules.all()] == [False, True]


def test_what_fails_is_not_tried_all_the_time(tmp_path: Path) -> None:
    """What is due and cannot be done, on a full disk for example, waits for the next look: not for a hundredth."""
    clock, tries, second = Clock(), list[float](), Event()

    def full(_: DueTime) -> None:
        tries.append(time.monotonic())
        if len(tries) > 1:
            second.set()
        raise UnavailableError("the disk is full")

    with open_store(str(tmp_path / "m.db")) as store:
        scheduler = Scheduler(store, clock)
        scheduler.declare("dispatch:", {"dispatch:plan": ScheduledAction(rule=parse_rule("Mon 08:00"), act=full)})
        clock.time += timedelta(hours=2)
        scheduler.start()
        try:
            assert eventually(lambda: tries, what="the first try")
            assert not second.wait(0.5) or tries[1] - tries[0] > 1.0, "the next look is seconds away"
        finally:
            scheduler.stop()
