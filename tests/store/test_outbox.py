"""Cursors and messages to deliver: the same on each kind of database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from debug_server.errors import InvalidInputError
from debug_server.store import MetadataStore

from .conftest import Clock


def test_the_cursor_and_its_messages_are_one_commit(store: MetadataStore) -> None:
    """A message that cannot be written moves no cursor; each collection is there whole."""
    assert store.outbox.cursor("topic") is None
    store.outbox.add("topic", 7, [(1, {"n": 1}), (2, {"n": 2}), (1, {"n": 3})])
    assert store.outbox.cursor("topic") == 7
    with pytest.raises(InvalidInputError, match="a message"):
        store.outbox.add("topic", 9, [(3, {"n": 4}), (3, {"n": object()})])
    assert store.outbox.cursor("topic") == 7
    assert [(item.lane, item.data["n"]) for item in store.outbox.heads("topic")] == [(1, 1), (2, 2)]
    assert store.outbox.heads("another") == []


def test_a_lane_is_in_order_and_the_most_urgent_first(store: MetadataStore, clock: Clock) -> None:
    """The first of each lane, by the time it is due; one that is postponed holds its lane and no other."""
    store.outbox.add("topic", 1, [(1, {"n": 1}), (1, {"n": 2}), (2, {"n": 3})])
    first, second = store.outbox.heads("topic")
    store.outbox.postpone(first.id, clock() + timedelta(seconds=30))
    heads = store.outbox.heads("topic")
    assert [(item.data["n"], item.attempts) for item in heads] == [(3, 0), (1, 1)]
    assert (heads[1].due_at, heads[1].created_at) == (clock() + timedelta(seconds=30), clock())
    assert store.outbox.remove(second.id) is True
    assert store.outbox.remove(first.id) is False
    (last,) = store.outbox.heads("topic")
    assert last.data == {"n": 2} and store.outbox.remove(last.id) is True and store.outbox.heads("topic") == []
    assert store.outbox.remove(last.id) is True
