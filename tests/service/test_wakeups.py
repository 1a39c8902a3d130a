"""Waking coroutines: at once, only those concerned, in any number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from debug_server.model import EventHead
from debug_server.service.wakeups import ANYTHING, Wakeups, wait_for
from debug_server.store import MetadataStore, open_store

SECONDS = 60.0  # for what happens at once, or with the next look


@pytest.fixture
def store(tmp_path: Path) -> MetadataStore:
    return open_store(f"sqlite:///{tmp_path}/m.db")


def wakeups_of(store: MetadataStore) -> Wakeups:
    async def read(after: int, limit: int) -> list[EventHead]:
        return store.events.heads(after, limit)

    async def last() -> int:
        return store.events.last()

    return Wakeups(store, read=read, last=last)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(250):
            await work()

    asyncio.run(bounded())


def test_an_event_wakes_whom_it_concerns(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's event wakes its followers, its session's and those of everything, without a look; not another's."""
    monkeypatch.setattr("debug_server.service.wakeups.POLL_SECONDS", 3600)
    session = store.sessions.create()
    wakeups = wakeups_of(store)

    async def work() -> None:
        async with (
            wakeups.changes_of(("session", session.id)) as mine,
            wakeups.changes_of(("session", session.id + 1)) as other,
            wakeups.changes_of(ANYTHING) as anything,
        ):
            await asyncio.to_thread(store.commands.add, session_id=session.id, argv=["x"])
            assert await wait_for(mine, SECONDS) and await wait_for(anything, SECONDS)
            assert not other.is_set()

    run(work)
    wakeups.close()


def test_many_commits_wake_a_waiter_once(store: MetadataStore) -> None:
    """Until it looks: what was committed meanwhile it then reads, and later commits wake it again."""
    wakeups, woke = wakeups_of(store), list[int]()

    async def work() -> None:
        async with wakeups.changes_of(ANYTHING) as woken:
            loop = asyncio.get_running_loop()
            call = loop.call_soon_threadsafe

            def count(*args: Any) -> Any:
                woke.append(1)
                return call(*args)

            loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]
            for _ in range(3):
                store.events.append("x")
                assert await wait_for(woken, SECONDS)
                store.events.append("x")
                woken.clear()
        assert len(woke) == 3

    run(work)
    wakeups.close()


def test_events_of_another_process_are_found(store: MetadataStore, tmp_path: Path) -> None:
    """What another process commits wakes too, a little later."""
    session = store.sessions.create()
    wakeups = wakeups_of(store)

    async def work() -> None:
        async with wakeups.changes_of(("session", session.id)) as woken:
            with open_store(f"sqlite:///{tmp_path}/m.db") as elsewhere:
                elsewhere.events.append("x", session_id=session.id)
            assert await wait_for(woken, SECONDS)

    run(work)
    wakeups.close()


def test_nothing_is_slept_over(store: MetadataStore) -> None:
    """Looking and waiting in turn, two thousand events of a busy writer are all seen by forty waiters."""
    wakeups = wakeups_of(store)
    count = 2000

    def write() -> None:
        for _ in range(count):
            store.events.append("x")

    async def watch() -> int:
        seen = 0
        async with wakeups.changes_of(ANYTHING) as woken:
            while seen < count:
                woken.clear()
                seen = store.events.last()
                if seen < count:
                    assert await wait_for(woken, SECONDS)
        return seen

    async def work() -> None:
        watchers = [asyncio.create_task(watch()) for _ in range(40)]
        await asyncio.to_thread(write)
        assert await asyncio.gather(*watchers) == [count] * 40

    run(work)
    wakeups.close()


def test_the_reader_ends_with_the_last_waiter(store: MetadataStore) -> None:
    """When nobody waits nothing runs, and the next waiter starts it again, in another loop too."""
    wakeups = wakeups_of(store)

    async def work() -> None:
        async with wakeups.changes_of(ANYTHING) as woken:
            await asyncio.to_thread(store.events.append, "x")
            assert await wait_for(woken, SECONDS)
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert len(others) == 1
        await asyncio.wait(others)

    run(work)
    run(work)
    wakeups.close()


def test_a_store_that_is_away_for_a_moment(store: MetadataStore) -> None:
    """A failing read wakes everybody, who see the failure themselves, and the reader goes on."""
    wakeups = wakeups_of(store)

    async def work() -> None:
        async with wakeups.changes_of(ANYTHING) as woken:
            await asyncio.sleep(0)
            with store._database.write() as transaction:
                transaction.run("ALTER TABLE events RENAME TO hidden")
            assert await wait_for(woken, SECONDS)
            with store._database.write() as transaction:
                transaction.run("ALTER TABLE hidden RENAME TO events")
            woken.clear()
            await asyncio.to_thread(store.events.append, "x")
            assert await wait_for(woken, SECONDS)

    run(work)
    wakeups.close()
