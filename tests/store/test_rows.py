"""Repositories, sessions, artifacts and debuggers: what is written is what is read."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from debug_server.errors import ConflictError, InvalidInputError, NotFoundError
from debug_server.model import ArtifactKind, Session, SessionStatus
from debug_server.store import MetadataStore

from .conftest import Clock


def test_repositories(store: MetadataStore, clock: Clock) -> None:
    """A repository is found by id and name, changes only in what is given, and its name is its own."""
    made = store.create_repository("demo", "https://host/demo.git", settings={"manifests": ["a"]})
    assert store.get_repository(made.id) == store.get_repository_by_name("demo") == made
    clock.move(5)
    changed = store.update_repository(made.id, default_branch="trunk")
    assert (changed.default_branch, changed.remote_url, changed.settings) == ("trunk", made.remote_url, made.settings)
    assert changed.updated_at > made.updated_at
    with pytest.raises(ConflictError, match="'demo' is taken"):
        store.create_repository("demo", "/elsewhere")
    with pytest.raises(InvalidInputError, match=r"'\.\.'"):
        store.create_repository("..", "/elsewhere")
    with pytest.raises(InvalidInputError, match="needs the URL"):
        store.create_repository("empty", "")
    other = store.create_repository("other", "/elsewhere")
    assert [repository.id for repository in store.list_repositories()] == [made.id, other.id]
    with pytest.raises(NotFoundError, match="'nobody'"):
        store.get_repository_by_name("nobody")
    with pytest.raises(NotFoundError):
        store.update_repository(99, description="x")


def test_sessions_keep_what_they_are_given(store: MetadataStore, clock: Clock) -> None:
    """A session refers to rows that exist, and every field comes back."""
    repository = store.create_repository("demo", "/demo")
    worktree = store.add_worktree(repository.id, "/wt/1", "pool")
    token, _ = store.create_token("t", ["admin"])
    made = store.create_session(
        repository_id=repository.id,
        commit_sha="c" * 40,
        worktree_id=worktree.id,
        patch_hash="p",
        requested_by="me",
        owner_token_id=token.id,
        expires_at=clock() + timedelta(hours=1),
        metadata={"a": 1},
    )
    assert store.get_session(made.id) == made
    assert (made.repository_id, made.worktree_id, made.owner_token_id) == (repository.id, worktree.id, token.id)
    assert made.expires_at == clock() + timedelta(hours=1)
    assert (made.status, made.metadata, made.patch_hash) == (SessionStatus.PENDING, {"a": 1}, "p")
    store.remove_worktree(worktree.id)
    assert store.get_session(made.id).worktree_id is None
    for unknown in ({"repository_id": 99}, {"worktree_id": 99}, {"owner_token_id": 99}):
        with pytest.raises(NotFoundError, match="99"):
            store.create_session(**unknown)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="time zone"):
        store.create_session(expires_at=datetime(2030, 1, 1))


def test_a_session_ends_once(store: MetadataStore, session: Session) -> None:
    """pending -> running -> completed; no way back, no second end, and an event for each change."""
    store.update_session(session.id, status=SessionStatus.RUNNING)
    with pytest.raises(ConflictError, match="running and cannot become pending"):
        store.update_session(session.id, status=SessionStatus.PENDING)
    store.update_session(session.id, status=SessionStatus.COMPLETED)
    for status in (SessionStatus.RUNNING, SessionStatus.CANCELLED):
        with pytest.raises(ConflictError, match="completed"):
            store.update_session(session.id, status=status)
    assert store.update_session(session.id, metadata={"note": "late"}).metadata == {"note": "late"}
    kinds = [event.kind for event in store.read_events(session_id=session.id)]
    assert kinds == ["session.created", "session.running", "session.completed"]
    with pytest.raises(NotFoundError):
        store.update_session(99, status=SessionStatus.RUNNING)


def test_listing_sessions(store: MetadataStore) -> None:
    """Filters narrow the list; the cursor goes through it in pages without a repeat."""
    ids = [store.create_session().id for _ in range(5)]
    store.update_session(ids[1], status=SessionStatus.RUNNING)
    assert [session.id for session in store.list_sessions(status=SessionStatus.RUNNING)] == [ids[1]]
    first = store.list_sessions(limit=3)
    rest = store.list_sessions(after=first[-1].id, limit=3)
    assert [session.id for session in [*first, *rest]] == ids
    assert store.list_sessions(repository_id=1) == []


def test_heartbeat_and_expiry(store: MetadataStore, clock: Clock) -> None:
    """touch_sessions moves updated_at of sessions that live, and only those are listed as expired."""
    lasting = store.create_session()
    short = store.create_session(expires_at=clock() + timedelta(seconds=10))
    ended = store.create_session(expires_at=clock() + timedelta(seconds=10))
    store.update_session(ended.id, status=SessionStatus.CANCELLED)
    before, now = clock(), clock.move(10)
    store.touch_sessions([lasting.id, ended.id, 99])
    assert store.get_session(lasting.id).updated_at == now
    assert [session.id for session in store.list_expired_sessions(now)] == [short.id]
    assert store.list_expired_sessions(now - timedelta(seconds=1)) == []
    assert store.get_session(ended.id).updated_at == before


def test_artifacts(store: MetadataStore, session: Session) -> None:
    """Artifacts are found by id, session, command and kind; they need a session and a command that exist."""
    command = store.add_command(session_id=session.id, argv=["x"])
    junit = store.add_artifact(
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
    loose = store.add_artifact(session_id=session.id, command_id=None, kind=ArtifactKind.CUSTOM, name="x", path="/a/x")
    assert store.get_artifact(junit.id) == junit and junit.size == 1 << 40
    assert store.list_artifacts(session.id) == [junit, loose]
    assert store.list_artifacts(session.id, command_id=command.id) == [junit]
    again = store.add_artifact(
        session_id=session.id, command_id=command.id, kind=ArtifactKind.JUNIT, name="junit.xml", path="/a/junit.xml"
    )
    assert again.id == junit.id and store.list_artifacts(session.id, command_id=command.id) == [again]
    assert store.list_artifacts(session.id, kind=ArtifactKind.CUSTOM) == [loose]
    for session_id, command_id in ((99, None), (session.id, 99)):
        with pytest.raises(NotFoundError, match="99"):
            store.add_artifact(session_id=session_id, command_id=command_id, kind=ArtifactKind.LOG, name="x", path="/x")
    with pytest.raises(NotFoundError):
        store.get_artifact(99)


def test_debuggers(store: MetadataStore, session: Session) -> None:
    """A tunnel's state is recorded, changed and listed by session."""
    made = store.add_debugger(session.id, kind="debugpy", host="127.0.0.1", port=5678, status="created")
    changed = store.update_debugger(made.id, status="ready", data={"clients": 1})
    assert store.get_debugger(made.id) == changed
    assert (changed.status, changed.data, changed.port) == ("ready", {"clients": 1}, 5678)
    assert store.list_debuggers(session.id) == [changed]
    with pytest.raises(NotFoundError):
        store.add_debugger(99, kind="gdb", host="h", port=1, status="created")
    with pytest.raises(NotFoundError):
        store.update_debugger(99, status="x")


def test_text_that_no_database_holds_is_refused(store: MetadataStore) -> None:
    """A lone surrogate and a number beyond 64 bits are bad input, not a driver's traceback."""
    with pytest.raises(InvalidInputError):
        store.create_session(requested_by="\udcff")
    with pytest.raises((InvalidInputError, NotFoundError)):
        store.get_session(1 << 70)
