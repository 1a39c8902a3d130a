"""A request that waits for a command which another thread adds and runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from debug_server.errors import QueueFullError, ResourcesExhaustedError
from debug_server.model import Command, CommandPlan, ExitReason, ExitRecord
from debug_server.service.adding import Adding
from debug_server.service.wakeups import Wakeups
from debug_server.store import MetadataStore, open_store

SECONDS = 100.0
Told = Callable[[Command], None]


@pytest.fixture
def store(tmp_path: Path) -> MetadataStore:
    """An empty store."""
    return open_store(f"sqlite:///{tmp_path}/m.db")


def wakeups_of(store: MetadataStore) -> Wakeups:
    """The wake-ups of the running loop; they need not read the store."""
    return Wakeups(store, read=None, last=None)  # type: ignore[arg-type]


def row_of(store: MetadataStore, owner: str | None) -> Command:
    """A row that an engine would add."""
    session = store.sessions.create()
    return store.commands.add(session_id=session.id, argv=["true"], claim_owner=owner)


def waited(
    store: MetadataStore, add: Callable[[Told], Command], *, until_ended: bool, seconds: float = SECONDS
) -> Command:
    """What the request gets, with ``add`` in a thread."""

    async def scene() -> Command:
        adding = Adding(add, wakeups_of(store), until_ended=until_ended)
        threading.Thread(target=adding.run, daemon=True).start()
        return await adding.wait(time.monotonic() + seconds)

    return asyncio.run(scene())


def test_a_row_may_be_enough(store: MetadataStore) -> None:
    """The request goes on while the thread runs the command."""
    row, gate = row_of(store, "here"), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(store, add, until_ended=False) == row
    gate.set()


def test_it_may_wait_for_the_end(store: MetadataStore) -> None:
    """The commit of the end wakes it, before the thread is done."""
    row, gate = row_of(store, "here"), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        end = ExitRecord(reason=ExitReason.CANCELLED)
        store.commands.finish(row.id, attempt=row.attempt, owner="here", record=end)
        gate.wait(SECONDS)
        return row

    assert waited(store, add, until_ended=True) == row
    gate.set()


def test_at_the_deadline_it_goes_on_without_the_end(store: MetadataStore) -> None:
    """The command was added, and runs on."""
    row, added, gate = row_of(store, "here"), threading.Event(), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        added.set()
        gate.wait(SECONDS)
        return row

    async def scene() -> Command:
        adding = Adding(add, wakeups_of(store), until_ended=True)
        threading.Thread(target=adding.run, daemon=True).start()
        assert await asyncio.to_thread(added.wait, SECONDS)
        return await adding.wait(time.monotonic() + 0.05)

    assert asyncio.run(scene()) == row
    gate.set()


@pytest.mark.parametrize("follow_up", [True, False])
def test_it_waits_for_what_follows(store: MetadataStore, follow_up: bool) -> None:
    """After the end its artifacts are copied. Where no end is committed, the thread wakes the request, too."""
    session, done = store.sessions.create(), list[int]()
    plan = CommandPlan(artifacts=("*",) if follow_up else ())
    row = store.commands.add(session_id=session.id, argv=["true"], claim_owner="here", plan=plan)

    async def scene() -> None:
        wakeups = wakeups_of(store)

        def add(told: Told) -> Command:
            told(row)
            if follow_up:
                end = ExitRecord(reason=ExitReason.CANCELLED)
                store.commands.finish(row.id, attempt=row.attempt, owner="here", record=end)
            done.append(1)
            return row

        adding = Adding(add, wakeups, until_ended=True)
        threading.Thread(target=adding.run, daemon=True).start()
        assert await adding.wait(time.monotonic() + SECONDS) == row and done == [1]
        assert wakeups._at_end == {}

    asyncio.run(scene())


def test_a_queued_command_is_told_at_once(store: MetadataStore) -> None:
    """Nobody runs it now: the request waits for it in another way."""
    row, gate = row_of(store, None), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(store, add, until_ended=True) == row
    gate.set()


def test_an_error_is_the_requests(store: MetadataStore) -> None:
    """It is raised there."""

    def add(told: Told) -> Command:
        raise QueueFullError("full")

    with pytest.raises(QueueFullError, match="full"):
        waited(store, add, until_ended=True)


@pytest.mark.parametrize("until_ended", [True, False])
def test_a_request_whose_thread_never_comes_leaves(store: MetadataStore, until_ended: bool) -> None:
    """Then nothing is added any more."""

    async def scene() -> list[int]:
        added: list[int] = []

        def add(told: Told) -> Command:
            added.append(1)
            return replace(row_of(store, None))

        adding = Adding(add, wakeups_of(store), until_ended=until_ended)
        with pytest.raises(ResourcesExhaustedError):
            await adding.wait(time.monotonic() + 0.01)
        adding.run()
        return added

    assert asyncio.run(scene()) == []
