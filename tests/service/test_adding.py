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
from debug_server.model import Command
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
    """The wake-ups of the running loop."""

    async def read(after: int, limit: int) -> list[object]:
        return []

    async def last() -> int:
        return 0

    return Wakeups(store, read=read, last=last)  # type: ignore[arg-type]


def row_of(store: MetadataStore, owner: str | None) -> Command:
    """A row that an engine would add."""
    session = store.sessions.create()
    return store.commands.add(session_id=session.id, argv=["true"], claim_owner=owner)


def waited(store: MetadataStore, add: Callable[[Told], Command], *, deadline: float | None) -> Command:
    """What the request gets, with ``add`` in a thread."""

    async def scene() -> Command:
        async with wakeups_of(store).change_of_new() as new:
            adding = Adding(add, new, until_ended=deadline is not None)
            threading.Thread(target=adding.run, daemon=True).start()
            return await adding.wait(deadline)

    return asyncio.run(scene())


def test_a_row_is_enough_without_a_deadline(store: MetadataStore) -> None:
    """The request goes on while the thread runs the command."""
    row, gate = row_of(store, "here"), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(store, add, deadline=None) == row
    gate.set()


def test_it_waits_for_the_end_with_a_deadline(store: MetadataStore) -> None:
    """A commit that says so wakes it, before the thread is done."""
    row = row_of(store, "here")
    gate = threading.Event()

    async def scene() -> None:
        wakeups = wakeups_of(store)

        def add(told: Told) -> Command:
            told(row)
            store.commands.request_cancel(row.id)  # a change of the command
            gate.wait(SECONDS)
            return row

        async with wakeups.change_of_new() as new:
            adding = Adding(add, new, until_ended=True)
            threading.Thread(target=adding.run, daemon=True).start()
            assert await adding.wait(time.monotonic() + SECONDS) == row
        assert wakeups._waiting == {}

    asyncio.run(scene())
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
        async with wakeups_of(store).change_of_new() as new:
            adding = Adding(add, new, until_ended=True)
            threading.Thread(target=adding.run, daemon=True).start()
            assert await asyncio.to_thread(added.wait, SECONDS)
            return await adding.wait(time.monotonic() + 0.05)

    assert asyncio.run(scene()) == row
    gate.set()


def test_a_queued_command_is_told_at_once(store: MetadataStore) -> None:
    """Nobody runs it now: the request waits for it in another way."""
    row, gate = row_of(store, None), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(store, add, deadline=time.monotonic() + SECONDS) == row
    gate.set()


def test_an_error_is_the_requests(store: MetadataStore) -> None:
    """It is raised there."""

    def add(told: Told) -> Command:
        raise QueueFullError("full")

    with pytest.raises(QueueFullError, match="full"):
        waited(store, add, deadline=time.monotonic() + SECONDS)


def test_a_request_whose_thread_never_comes_leaves(store: MetadataStore) -> None:
    """Then nothing is added any more."""

    async def scene() -> list[int]:
        added: list[int] = []

        def add(told: Told) -> Command:
            added.append(1)
            return replace(row_of(store, None))

        async with wakeups_of(store).change_of_new() as new:
            adding = Adding(add, new, until_ended=True)
            with pytest.raises(ResourcesExhaustedError):
                await adding.wait(time.monotonic() + 0.01)
            adding.run()
            return added

    assert asyncio.run(scene()) == []
