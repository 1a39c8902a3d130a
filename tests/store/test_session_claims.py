"""Resources that sessions hold or wait for, and sealed secrets: the same on each kind of database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from debug_server.errors import ConflictError
from debug_server.model import (
    Claim,
    Command,
    CommandSpec,
    ExitReason,
    ExitRecord,
    QueuedRun,
    Session,
    SessionPlan,
    SessionStatus,
)
from debug_server.store import MetadataStore

DONE = ExitRecord(reason=ExitReason.EXITED, exit_code=0)


def add_run(store: MetadataStore, *claims: Claim, **more: Any) -> tuple[Session, Command]:
    """A command in a session of its own."""
    added = store.runs.add([QueuedRun(spec=CommandSpec(["x"]), session_plan=SessionPlan(), claims=claims, **more)])
    assert added is not None
    (command,) = added
    assert isinstance(command, Command)
    return store.sessions.get(command.session_id), command


def alone(resource: str) -> Claim:
    return Claim(resource=resource, waits=False)


def in_turn(resource: str) -> Claim:
    return Claim(resource=resource, waits=True)


def claimed(store: MetadataStore) -> list[int]:
    """The sessions of everything that can begin now."""
    found = []
    while (command := store.queue.claim_next("engine")) is not None:
        found.append(command.session_id)
    return found


def end(store: MetadataStore, session: Session) -> None:
    """Close a session whose command was claimed."""
    for command in store.commands.in_session(session.id):
        store.commands.start(command.id, attempt=1, owner="engine", handle={}, log_path="/l")
        store.commands.finish(command.id, attempt=1, owner="engine", record=DONE)
    store.sessions.set_status(session.id, SessionStatus.COMPLETED)


def test_what_is_taken_is_refused_with_its_holder(store: MetadataStore) -> None:
    """The same, one above, one below: refused, and nothing is added; a neighbour is free; the end frees it."""
    session, _ = add_run(store, alone("worktree:/a/b"), alone("branch x of /r"))
    for taken in ("worktree:/a/b", "worktree:/a", "worktree:/a/b/c", "branch x of /r"):
        with pytest.raises(ConflictError, match=f"session {session.id} holds"):
            add_run(store, alone("worktree:/free"), alone(taken))
    other, _ = add_run(store, alone("worktree:/a/bc"), alone("branch xy of /r"), alone("worktree:/free"))
    assert claimed(store) == [session.id, other.id]
    end(store, session)
    add_run(store, alone("worktree:/a/b/c"))


def test_locks_are_granted_in_order_of_age(store: MetadataStore) -> None:
    """One waits for every older one that overlaps, also for one that waits itself; strangers pass."""
    first, _ = add_run(store, in_turn("path:/p/a"))
    wide, _ = add_run(store, in_turn("path:/p"))
    narrow, _ = add_run(store, in_turn("path:/p/b"))
    stranger, _ = add_run(store, in_turn("path:/pp"), in_turn("path:/q"))
    free, _ = add_run(store)
    assert claimed(store) == [first.id, stranger.id, free.id]
    end(store, stranger)
    assert claimed(store) == []
    end(store, first)
    assert claimed(store) == [wide.id]
    end(store, wide)
    assert claimed(store) == [narrow.id]


def test_of_many_that_ask_at_once_one_has_it(store: MetadataStore) -> None:
    """However they race, a resource that cannot be waited for has one holder."""

    def ask(number: int) -> bool:
        try:
            add_run(store, alone(f"branch {number % 2}"), alone(f"own:{number}"))
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(32))) == 2


def test_secrets_of_a_session_are_sealed_until_they_are_dropped(store: MetadataStore) -> None:
    """They come back as they were, for their own session, until they are dropped."""
    session, _ = add_run(store, secrets={"callback_token": "t\u00f6k"})
    bare, _ = add_run(store)
    assert (store.sessions.secrets(session.id), store.sessions.secrets(bare.id)) == ({"callback_token": "t\u00f6k"}, {})
    store.sessions.drop_secrets(session.id)
    assert store.sessions.secrets(session.id) == {}
