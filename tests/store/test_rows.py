"""Repositories, sessions, artifacts and debuggers: what is written is what is read."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from debug_server.errors import ConflictError, InvalidInputError, NotFoundError
from debug_server.model import ArtifactKind, Session, SessionStatus
from debug_server.model.records import Cleanup
from debug_server.store import MetadataStore, open_store

from .conftest import Clock


def test_repositories(store: MetadataStore, clock: Clock) -> None:
    """A repository is found by id and name, changes only in what is given, and its name is its own."""
    made = store.repositories.create("demo", "https://host/demo.git", settings={"manifests": ["a"]})
    assert store.repositories.get(made.id) == store.repositories.by_name("demo") == made
    clock.move(5)
    changed = store.repositories.update(made.id, default_branch="trunk")
    assert (changed.default_branch, changed.remote_url, changed.settings) == ("trunk", made.remote_url, made.settings)
    assert changed.updated_at > made.updated_at
    with pytest.raises(ConflictError, match="'demo' is taken"):
        store.repositories.create("demo", "/elsewhere")
    with pytest.raises(InvalidInputError, match=r"'\.\.'"):
        store.repositories.create("..", "/elsewhere")
    with pytest.raises(InvalidInputError, match="needs the URL"):
        store.repositories.create("empty", "")
    other = store.repositories.create("other", "/elsewhere")
    assert [repository.id for repository in store.repositories.page()] == [made.id, other.id]
    with pytest.raises(NotFoundError, match="'nobody'"):
        store.repositories.by_name("nobody")
    with pytest.raises(NotFoundError):
        store.repositories.update(99, description="x")


def test_sessions_keep_what_they_are_given(store: MetadataStore, clock: Clock) -> None:
    """A session refers to rows that exist, and every field comes back."""
    repository = store.repositories.create("demo", "/demo")
    worktree = store.worktrees.add(repository.id, "/wt/1", "pool")
    token, _ = store.tokens.create("t", ["admin"])
    made = store.sessions.create(
        repository_id=repository.id,
        commit_sha="c" * 40,
        worktree_id=worktree.id,
        patch_hash="p",
        requested_by="me",
        owner_token_id=token.id,
        expires_at=clock() + timedelta(hours=1),
        metadata={"a": 1},
    )
    assert store.sessions.get(made.id) == made
    assert (made.repository_id, made.worktree_id, made.owner_token_id) == (repository.id, worktree.id, token.id)
    assert made.expires_at == clock() + timedelta(hours=1)
    assert (made.status, made.metadata, made.patch_hash) == (SessionStatus.PENDING, {"a": 1}, "p")
    store.worktrees.remove(worktree.id)
    assert store.sessions.get(made.id).worktree_id is None
    for unknown in ({"repository_id": 99}, {"worktree_id": 99}, {"owner_token_id": 99}):
        with pytest.raises(NotFoundError, match="99"):
            store.sessions.create(**unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="time zone"):
        store.sessions.create(expires_at=datetime(2030, 1, 1))


def test_writers_of_one_session_lose_nothing(store: MetadataStore, database_url: str, clock: Clock) -> None:
    """Its lease, its cleanup, its status and its use are noted by two stores at once: all of it is there, and what its
    caller said of it is untouched."""
    repository = store.repositories.create("demo", "/demo")
    worktree = store.worktrees.add(repository.id, "/wt/1", "pool")
    clock.move(5)
    for number in range(10):
        made = store.sessions.create(repository_id=repository.id, metadata={"mine": number})
        noted = Cleanup(succeeded=False, message=str(number))
        with open_store(database_url, now=clock) as other, ThreadPoolExecutor(4) as pool:
            done: list[Future[Any]] = [
                pool.submit(store.sessions.set_cleanup, made.id, noted),
                pool.submit(
                    other.sessions.set_lease, made.id, worktree_id=worktree.id, generation=7, commit_sha="c" * 40
                ),
                pool.submit(store.sessions.set_status, made.id, SessionStatus.RUNNING),
                pool.submit(other.sessions.touch, [made.id]),
            ]
        assert not [found.exception() for found in done if found.exception()]
        row = store.sessions.get(made.id)
        assert (row.cleanup, row.worktree_id, row.lease_generation) == (noted, worktree.id, 7)
        assert (row.status, row.commit_sha, row.metadata) == (SessionStatus.RUNNING, "c" * 40, {"mine": number})


def test_a_session_ends_once(store: MetadataStore, session: Session) -> None:
    """pending -> running -> completed; no way back, no second end, and an event for each change."""
    store.sessions.set_status(session.id, SessionStatus.RUNNING)
    with pytest.raises(ConflictError, match="running and cannot become pending"):
        store.sessions.set_status(session.id, SessionStatus.PENDING)
    store.sessions.set_status(session.id, SessionStatus.COMPLETED)
    for status in (SessionStatus.RUNNING, SessionStatus.CANCELLED):
        with pytest.raises(ConflictError, match="completed"):
            store.sessions.set_status(session.id, status)
    kinds = [event.kind for event in store.events.read(session_id=session.id)]
    assert kinds == ["session.created", "session.running", "session.completed"]
    with pytest.raises(NotFoundError):
        store.sessions.set_status(99, SessionStatus.RUNNING)


def test_listing_sessions(store: MetadataStore) -> None:
    """Filters narrow the list; the cursor goes through it in pages without a repeat."""
    ids = [store.sessions.create().id for _ in range(5)]
    store.sessions.set_status(ids[1], SessionStatus.RUNNING)
    assert [session.id for session in store.sessions.page(status=SessionStatus.RUNNING)] == [ids[1]]
    first = store.sessions.page(limit=3)
    rest = store.sessions.page(after=first[-1].id, limit=3)
    assert [session.id for session in [*first, *rest]] == ids
    assert store.sessions.page(repository_id=1) == []


def test_heartbeat_and_expiry(store: MetadataStore, clock: Clock) -> None:
    """touch_sessions moves updated_at of sessions that live, and only those are listed as expired."""
    lasting = store.sessions.create()
    short = store.sessions.create(expires_at=clock() + timedelta(seconds=10))
    ended = store.sessions.create(expires_at=clock() + timedelta(seconds=10))
    store.sessions.set_status(ended.id, SessionStatus.CANCELLED)
    before, now = clock(), clock.move(10)
    store.sessions.touch([lasting.id, ended.id, 99])
    assert store.sessions.get(lasting.id).updated_at == now
    assert [session.id for session in store.sessions.expired(now)] == [short.id]
    assert store.sessions.expired(now - timedelta(seconds=1)) == []
    assert store.sessions.get(ended.id).updated_at == before


def test_artifacts(store: MetadataStore, session: Session) -> None:
    """Artifacts are found by id, session, command and kind; they need a session and a command that exist."""
    command = store.commands.add(session_id=session.id, argv=["x"])
    junit = store.artifacts.add(
        session_id=session.id,
        command_id=command.id,
        kind=ArtifactKind.JUNIT,
        name="junit.xml",
        path="/a/junit.xml",
        size=1 << 40,
        sha256="s",
        content_type="application/xml",
        metadata={"tests": 3},
    )
    loose = store.artifacts.add(session_id=session.id, command_id=None, kind=ArtifactKind.CUSTOM, name="x", path="/a/x")
    assert store.artifacts.get(junit.id) == junit and junit.size == 1 << 40
    assert store.artifacts.in_session(session.id) == [junit, loose]
    assert store.artifacts.in_session(session.id, command_id=command.id) == [junit]
    again = store.artifacts.add(
        session_id=session.id, command_id=command.id, kind=ArtifactKind.JUNIT, name="junit.xml", path="/a/junit.xml"
    )
    assert again.id == junit.id and store.artifacts.in_session(session.id, command_id=command.id) == [again]
    assert store.artifacts.in_session(session.id, kind=ArtifactKind.CUSTOM) == [loose]
    for session_id, command_id in ((99, None), (session.id, 99)):
        with pytest.raises(NotFoundError, match="99"):
            store.artifacts.add(
                session_id=session_id, command_id=command_id, kind=ArtifactKind.LOG, name="x", path="/x"
            )
    with pytest.raises(NotFoundError):
        store.artifacts.get(99)


def test_debuggers(store: MetadataStore, session: Session) -> None:
    """A tunnel's state is recorded, changed and listed by session."""
    made = store.debuggers.add(session.id, kind="debugpy", host="127.0.0.1", port=5678, status="created")
    changed = store.debuggers.update(made.id, status="ready", data={"clients": 1})
    assert store.debuggers.get(made.id) == changed
    assert (changed.status, changed.data, changed.port) == ("ready", {"clients": 1}, 5678)
    assert store.debuggers.all(session.id) == [changed]
    with pytest.raises(NotFoundError):
        store.debuggers.add(99, kind="gdb", host="h", port=1, status="created")
    with pytest.raises(NotFoundError):
        store.debuggers.update(99, status="x")


def test_text_that_no_database_holds_is_refused(store: MetadataStore) -> None:
    """A lone surrogate and a number beyond 64 bits are bad input, not a driver's traceback."""
    with pytest.raises(InvalidInputError):
        store.sessions.create(requested_by="\udcff")
    with pytest.raises((InvalidInputError, NotFoundError)):
        store.sessions.get(1 << 70)
