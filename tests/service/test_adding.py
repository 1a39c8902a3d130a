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
from debug_server.store import MetadataStore, open_store

SECONDS = 100.0
Told = Callable[[Command], None]


@pytest.fixture
def store(tmp_path: Path) -> MetadataStore:
    """An empty store."""
    return open_store(f"sqlite:///{tmp_path}/m.db")


def row_of(store: MetadataStore, owner: str | None) -> Command:
    """A row that an engine would add."""
    session = store.sessions.create()
    return store.commands.add(session_id=session.id, argv=["true"], claim_owner=owner)


def waited(add: Callable[[Told], Command], *, until_ended: bool, seconds: float = SECONDS) -> Command:
    """What the request gets, with ``add`` in a thread."""

    async def scene() -> Command:
        adding = Adding(add, until_ended=until_ended)
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

    assert waited(add, until_ended=False) == row
    gate.set()


def test_it_may_wait_for_the_end(store: MetadataStore) -> None:
    """The request goes on when the thread is done with the command; at the deadline it goes on without."""
    row, gate, done = row_of(store, "here"), threading.Event(), list[int]()

    def add(told: Told) -> Command:
        told(row)
        done.append(1)
        return row

    def slow(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(add, until_ended=True) == row and done == [1]
    assert waited(slow, until_ended=True, seconds=0.05) == row
    gate.set()


def test_a_queued_command_is_told_at_once(store: MetadataStore) -> None:
    """Nobody runs it now: the request waits for it in another way."""
    row, gate = row_of(store, None), threading.Event()

    def add(told: Told) -> Command:
        told(row)
        gate.wait(SECONDS)
        return row

    assert waited(add, until_ended=True) == row
    gate.set()


def test_an_error_is_the_requests() -> None:
    """It is raised there."""

    def add(told: Told) -> Command:
        raise QueueFullError("full")

    with pytest.raises(QueueFullError, match="full"):
        waited(add, until_ended=True)


@pytest.mark.parametrize("until_ended", [True, False])
def test_a_request_whose_thread_never_comes_leaves(store: MetadataStore, until_ended: bool) -> None:
    """Then nothing is added any more."""

    async def scene() -> list[int]:
        added: list[int] = []

        def add(told: Told) -> Command:
            added.append(1)
            return replace(row_of(store, None))

        adding = Adding(add, until_ended=until_ended)
        with pytest.raises(ResourcesExhaustedError):
            await adding.wait(time.monotonic() + 0.01)
        adding.run()
        return added

    assert asyncio.run(scene()) == []
