"""Numbered events and the feed that waits for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from debug_server.errors import NotFoundError
from debug_server.events import EventFeed
from debug_server.model import Session
from debug_server.store import MetadataStore

from . import programs


def test_filters(store: MetadataStore, session: Session) -> None:
    """Events are found by kind prefix, session, command and subject; a command's event is its session's too."""
    command = store.commands.add(session_id=session.id, argv=["x"])
    own = store.events.append("runner.stdout", command_id=command.id, data={"offset": 3})
    worker = store.events.append("worker.ready", subject="codex")
    store.events.append("WORKER.shout")

    def numbers(**filters: object) -> list[int]:
        return [event.seq for event in store.events.read(**filters)]  # type: ignore[arg-type]

    assert numbers() == [1, 2, 3, 4, 5] and store.events.last() == 5
    assert numbers(kind="worker.") == numbers(subject="codex") == [worker]
    assert numbers(command_id=command.id) == [2, own]
    assert numbers(session_id=session.id) == [1, 2, own]
    assert numbers(after=2, limit=2) == [3, 4]
    assert numbers(kind="%") == []
    (event,) = store.events.read(kind="runner.")
    assert (event.session_id, event.command_id, event.data) == (session.id, command.id, {"offset": 3})
    with pytest.raises(NotFoundError):
        store.events.append("runner.stdout", command_id=99)
    assert store.events.last() == 5


def test_a_follower_sees_every_number(store: MetadataStore, database_url: str) -> None:
    """While two processes and four threads append, a follower by cursor reads 1, 2, 3 … without a gap or a repeat."""
    processes = [programs.start("append", database_url, name, "100") for name in ("one", "two")]
    with ThreadPoolExecutor(4) as pool, EventFeed(store.events) as feed:
        for number in range(200):
            pool.submit(store.events.append, "test.appended", subject="threads", data={"number": number})
        seen: list[int] = []
        deadline = time.monotonic() + 60
        while len(seen) < 400 and time.monotonic() < deadline:
            seen.extend(event.seq for event in feed.wait(seen[-1] if seen else 0, timeout=5))
    for process in processes:
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert seen == list(range(1, 401))


def test_an_append_wakes_the_waiter(store: MetadataStore) -> None:
    """A waiter returns with the event long before its timeout, woken by a change made through the store itself."""
    with EventFeed(store.events) as feed:
        result: list[list[str]] = []
        waiter = threading.Thread(target=lambda: result.append([event.kind for event in feed.wait(0, timeout=60)]))
        waiter.start()
        store.sessions.create()
        waiter.join(timeout=30)
        assert result == [["session.created"]]


def test_waiting_ends(store: MetadataStore) -> None:
    """A wait is empty after its timeout, and at once when the feed is closed."""
    feed = EventFeed(store.events)
    assert feed.wait(0, timeout=0) == []
    begin = time.monotonic()
    assert feed.wait(0, timeout=0.05) == []
    assert time.monotonic() - begin >= 0.05
    waiter = threading.Thread(target=feed.wait, args=(0, 60))
    waiter.start()
    feed.close()
    waiter.join(timeout=30)
    assert not waiter.is_alive()
    store.events.append("after.close")
