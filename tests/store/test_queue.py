"""Who is claimed next, and that nobody is claimed twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from debug_server.errors import ConflictError, NotFoundError, QueueFullError
from debug_server.model import CommandStatus, ExitReason, ExitRecord, Session
from debug_server.store import MetadataStore

from . import programs

FAILED = ExitRecord(reason=ExitReason.SPAWN_FAILED)


def add(store: MetadataStore, session: Session, key: str | None = None, limit: int = 1, priority: int = 0) -> int:
    return store.commands.add(session_id=session.id, argv=["x"], queue_key=key, key_limit=limit, priority=priority).id


def claim(store: MetadataStore, session_id: int | None = None) -> int | None:
    command = store.queue.claim_next("engine", session_id=session_id)
    return None if command is None else command.id


def test_priority_then_age(store: MetadataStore, session: Session) -> None:
    """The highest priority is claimed first, the oldest among equals."""
    low, old, young, high = (add(store, session, str(n), priority=p) for n, p in enumerate((-1, 0, 0, 9)))
    assert [claim(store) for _ in range(5)] == [high, old, young, low, None]


def test_a_key_is_an_order_and_a_bound(store: MetadataStore, session: Session) -> None:
    """A key at its limit is skipped, others go on, and an end lets its next one in, in order."""
    first, second = add(store, session, "k"), add(store, session, "k")
    other = add(store, session, "free")
    assert [claim(store), claim(store), claim(store)] == [first, other, None]
    store.commands.finish(first, attempt=1, owner="engine", record=FAILED)
    assert claim(store) == second


def test_the_default_key_is_the_session(store: MetadataStore, session: Session) -> None:
    """Commands of one session run one after the other unless a key says otherwise."""
    first, second = add(store, session), add(store, session)
    assert store.commands.get(first).queue_key == f"session:{session.id}"
    assert [claim(store), claim(store)] == [first, None]
    store.commands.finish(first, attempt=1, owner="engine", record=FAILED)
    assert claim(store) == second


def test_a_running_command_holds_its_key(store: MetadataStore, session: Session) -> None:
    """Born-claimed and running commands count against the key's limit."""
    inline = store.commands.add(session_id=session.id, argv=["x"], claim_owner="inline")
    store.commands.start(inline.id, attempt=1, owner="inline", handle={}, log_path="/l")
    waiting = add(store, session)
    assert claim(store) is None
    store.commands.finish(inline.id, attempt=1, owner="inline", record=FAILED)
    assert claim(store) == waiting


def test_claim_within_a_session(store: MetadataStore, session: Session) -> None:
    """With session_id only that session's commands are claimed."""
    other = store.sessions.create()
    foreign, own = add(store, other, priority=5), add(store, session)
    assert [claim(store, session.id), claim(store, session.id), claim(store)] == [own, None, foreign]


def test_requeue_keeps_the_place(store: MetadataStore, session: Session) -> None:
    """A command given back is the next of its key again, with a higher attempt; a wrong claim gives nothing back."""
    first, _ = add(store, session), add(store, session)
    claim(store)
    assert not store.queue.requeue(first, attempt=2, owner="engine")
    assert not store.queue.requeue(first, attempt=1, owner="thief")
    assert store.queue.requeue(first, attempt=1, owner="engine")
    assert not store.queue.requeue(first, attempt=1, owner="engine")
    again = store.queue.claim_next("engine")
    assert again is not None and (again.id, again.attempt) == (first, 2)
    store.commands.start(first, attempt=2, owner="engine", handle={}, log_path="/l")
    assert not store.queue.requeue(first, attempt=2, owner="engine")


def test_requeue_of_a_cancelled_command_ends_it(store: MetadataStore, session: Session) -> None:
    """A command that somebody asked to cancel does not return to the queue."""
    command_id = add(store, session)
    claim(store)
    store.commands.request_cancel(command_id)
    assert store.queue.requeue(command_id, attempt=1, owner="engine")
    assert store.commands.get(command_id).status is CommandStatus.CANCELLED
    assert store.queue.claim_next("engine") is None


def test_take_over(store: MetadataStore, session: Session) -> None:
    """A claim moves to a new owner once; the old one can do nothing any more."""
    command_id = add(store, session)
    claim(store)
    assert [command.id for command in store.queue.claimed()] == [command_id]
    assert store.queue.take_over(command_id, attempt=1, owner="engine", new_owner="next")
    assert not store.queue.take_over(command_id, attempt=1, owner="engine", new_owner="other")
    assert not store.queue.requeue(command_id, attempt=1, owner="engine")
    store.commands.finish(command_id, attempt=1, owner="next", record=FAILED)
    assert not store.queue.take_over(command_id, attempt=1, owner="next", new_owner="late")
    assert store.queue.claimed() == []


@pytest.mark.timeout(300)  # hundreds of claims against each other, on a machine that may be busy
def test_sixteen_claimers_in_two_processes(store: MetadataStore, database_url: str, session: Session) -> None:
    """Eight threads in each of two processes claim 300 commands once each and never exceed a key's limit."""
    keys = [("a", 1), ("b", 2), ("c", 5), *((f"free-{n}", 1) for n in range(60))]
    ids = {add(store, session, *keys[number % len(keys)]) for number in range(300)}
    processes = [programs.start("claim", database_url, name, "8") for name in ("one", "two")]
    lines = [line for process in processes for line in process.communicate(timeout=140)[0].decode().splitlines()]
    assert [process.returncode for process in processes] == [0, 0]
    claims = [line.split() for line in lines]
    assert {int(claim[0]) for claim in claims} == ids and len(claims) == 300
    over = [claim for claim in claims if int(claim[3]) > int(claim[2])]
    assert over == []
    statuses = Counter(command.status for command in store.commands.in_session(session.id))
    assert statuses == {CommandStatus.FAILED: 300}
    assert all(command.attempt == 1 for command in store.commands.in_session(session.id))


@pytest.mark.timeout(300)  # a thousand commands are added first
def test_claiming_is_quick_in_a_long_queue(store: MetadataStore, session: Session) -> None:
    """With thousands waiting, half of them behind a key at its limit, a claim still takes a few milliseconds."""
    for number in range(600):
        add(store, session, "full", priority=1)
        add(store, session, f"k{number}")
    claim(store)
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        assert claim(store) is not None
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.05  # every one has the same to do: what else the machine does can only add to it


def test_mixed_callers_never_block_each_other_for_good(store: MetadataStore) -> None:
    """Threads that add with keys and bounds, claim, requeue, start, end, cancel and append end without a deadlock."""
    sessions = [store.sessions.create().id for _ in range(2)]

    def work(seed: int) -> None:
        chance, owner = random.Random(seed), f"owner-{seed}"
        steps: list[Callable[[], object]] = [
            lambda: store.commands.add(
                session_id=chance.choice(sessions),
                argv=["x"],
                idempotency_key=str(chance.randrange(40)),
                max_pending=20,
            ),
            lambda: store.commands.add(session_id=chance.choice(sessions), argv=["x"], key_limit=3, max_pending=20),
            lambda: store.queue.claim_next(owner),
            lambda: [store.queue.requeue(c.id, attempt=c.attempt, owner=owner) for c in store.queue.claimed()[:1]],
            lambda: [
                store.commands.start(c.id, attempt=c.attempt, owner=owner, handle={}, log_path="/l")
                for c in store.queue.claimed()[:2]
            ],
            lambda: [
                store.commands.finish(c.id, attempt=c.attempt, owner=str(c.owner), record=FAILED, log_path="/l/a")
                for c in store.queue.claimed()[:2]
            ],
            lambda: store.commands.request_cancel(chance.randrange(1, 60)),
            lambda: store.events.append("test.mixed"),
        ]
        for _ in range(80):
            with suppress(ConflictError, NotFoundError, QueueFullError):
                chance.choice(steps)()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    numbers = [event.seq for event in store.events.read(limit=10_000)]
    assert numbers == list(range(1, len(numbers) + 1))
