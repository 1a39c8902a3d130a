"""Order keys, bounds of a key, and stdin that a command is given."""

from __future__ import annotations

import pytest

from debug_server.errors import ConflictError, QueueFullError
from debug_server.model import ExitReason, ExitRecord, Session
from debug_server.store import MetadataStore

FAILED = ExitRecord(reason=ExitReason.SPAWN_FAILED)


def _add(store: MetadataStore, session: Session, task: str | None, priority: int = 0, key: str = "k") -> int:
    return store.commands.add(
        session_id=session.id, argv=["x"], queue_key=key, key_limit=99, priority=priority, order_key=task
    ).id


def _claim(store: MetadataStore) -> int | None:
    command = store.queue.claim_next("engine")
    return None if command is None else command.id


def test_one_order_key_keeps_its_order_against_priority(store: MetadataStore, session: Session) -> None:
    """A later command of a task waits for the earlier one's end however urgent it is; other tasks go by priority."""
    first = _add(store, session, "task:A", 0)
    urgent = _add(store, session, "task:A", 300)
    other = _add(store, session, "task:B", 100)
    free = _add(store, session, None, 50)
    assert [_claim(store) for _ in range(4)] == [other, free, first, None]
    store.commands.finish(first, attempt=1, owner="engine", record=FAILED)
    assert _claim(store) == urgent


def test_a_key_has_a_bound_of_its_own(store: MetadataStore, session: Session) -> None:
    """More than key_max_pending waiting commands of one key are refused; another key still has room."""
    for _ in range(2):
        store.commands.add(session_id=session.id, argv=["x"], queue_key="runner:a", key_max_pending=2)
    with pytest.raises(QueueFullError, match="runner:a"):
        store.commands.add(session_id=session.id, argv=["x"], queue_key="runner:a", key_max_pending=2)
    store.commands.add(session_id=session.id, argv=["x"], queue_key="runner:b", key_max_pending=2)


def test_stdin_is_sealed_and_removed_at_the_end(store: MetadataStore, session: Session) -> None:
    """The text comes back as it was given, until the command has ended; its events carry its subject."""
    text = '{"payload": "\\u0000 s3cret \u00e4"}'
    command = store.commands.add(session_id=session.id, argv=["x"], stdin_text=text, subject="dispatch")
    assert store.commands.inputs(command.id)[1] == text
    claimed = store.queue.claim_next("engine")
    assert claimed is not None
    store.commands.finish(claimed.id, attempt=1, owner="engine", record=FAILED)
    with pytest.raises(ConflictError, match="stdin"):
        store.commands.inputs(command.id)
    assert [event.kind for event in store.events.read(subject="dispatch")] == ["command.pending", "command.finished"]
