"""Leases: one holder at a time, fenced by generation and token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from debug_server.errors import ConflictError, MetadataError, NotFoundError
from debug_server.model import Worktree, WorktreeStatus
from debug_server.store import MetadataStore

from .conftest import Clock

TTL = timedelta(seconds=60)


@pytest.fixture
def worktree(store: MetadataStore) -> Worktree:
    repository = store.repositories.create("demo", "/demo")
    return store.worktrees.add(repository.id, "/wt/1", "pool")


def lease(store: MetadataStore, worktree: Worktree, clock: Clock, token: str) -> Worktree | None:
    return store.worktrees.lease(
        worktree_id=worktree.id,
        owner=f"owner of {token}",
        lease_token=token,
        commit_sha="c1",
        environment_hash="e1",
        expires_at=clock() + TTL,
    )


def test_a_lease_from_idle_to_idle(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """lease, mark busy, renew, release: each step shows in the row, and the generation counts leases."""
    assert (worktree.status, worktree.generation, worktree.commit_sha) == (WorktreeStatus.IDLE, 0, None)
    held = lease(store, worktree, clock, "t")
    assert held is not None and held == store.worktrees.get(worktree.id)
    assert (held.status, held.generation, held.lease_token) == (WorktreeStatus.RESERVED, 1, "t")
    assert (held.commit_sha, held.environment_hash, held.lease_expires_at) == ("c1", "e1", clock() + TTL)
    assert store.worktrees.mark_busy(worktree.id, "t", 1)
    assert store.worktrees.renew(worktree.id, "t", 1, clock() + 2 * TTL)
    busy = store.worktrees.get(worktree.id)
    assert (busy.status, busy.lease_expires_at) == (WorktreeStatus.BUSY, clock() + 2 * TTL)
    assert store.worktrees.release(worktree.id, "t", 1, commit_sha="c2", environment_hash="e2")
    idle = store.worktrees.get(worktree.id)
    assert (idle.status, idle.owner, idle.lease_token, idle.lease_expires_at) == (WorktreeStatus.IDLE, None, None, None)
    assert (idle.commit_sha, idle.environment_hash, idle.generation) == ("c2", "e2", 1)
    assert not store.worktrees.release(worktree.id, "t", 1, commit_sha=None, environment_hash=None)
    assert store.worktrees.get(worktree.id) == idle


def test_one_holder(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """Of twenty concurrent callers one gets the workspace."""
    with ThreadPoolExecutor(10) as pool:
        held = [item for item in pool.map(lambda n: lease(store, worktree, clock, str(n)), range(20)) if item]
    assert len(held) == 1
    assert store.worktrees.get(worktree.id) == held[0]


def test_an_expired_holder_is_fenced_off(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """Once an expired lease went to another holder, the former one can neither renew, nor use, nor release it."""
    lease(store, worktree, clock, "old")
    assert lease(store, worktree, clock, "new") is None
    now = clock.move(60)
    assert [item.id for item in store.worktrees.expired(now)] == [worktree.id]
    taken = lease(store, worktree, clock, "new")
    assert taken is not None and taken.generation == 2
    assert store.worktrees.expired(now) == []
    assert not store.worktrees.renew(worktree.id, "old", 1, clock() + TTL)
    assert not store.worktrees.mark_busy(worktree.id, "old", 1)
    for token, generation in (("old", 1), ("old", 2), ("new", 1)):
        with pytest.raises(ConflictError, match="generation 2"):
            store.worktrees.release(worktree.id, token, generation, commit_sha=None, environment_hash=None)
    assert store.worktrees.get(worktree.id) == taken
    assert issubclass(ConflictError, MetadataError)


def test_a_late_holder_may_renew(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """A lease that ran out but was given to nobody can still be renewed by its holder."""
    lease(store, worktree, clock, "t")
    clock.move(120)
    assert store.worktrees.renew(worktree.id, "t", 1, clock() + TTL)
    assert store.worktrees.expired(clock()) == []


def test_the_rest_of_the_row(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """Clearing and removal; a path is registered once; unknown rows are named."""
    lease(store, worktree, clock, "t")
    cleared = store.worktrees.clear(worktree.id)
    assert (cleared.commit_sha, cleared.environment_hash, cleared.lease_token) == (None, None, "t")
    with pytest.raises(ConflictError, match="/wt/1"):
        store.worktrees.add(worktree.repository_id, "/wt/1", "pool")
    assert [item.id for item in store.worktrees.page(worktree.repository_id)] == [worktree.id]
    store.worktrees.remove(worktree.id)
    again = store.worktrees.add(worktree.repository_id, "/wt/1", "overlay")
    assert again.id != worktree.id
    for call in (store.worktrees.get, store.worktrees.clear, store.worktrees.remove):
        with pytest.raises(NotFoundError, match="worktree 99"):
            call(99)
    with pytest.raises(NotFoundError, match="repository 99"):
        store.worktrees.add(99, "/wt/9", "pool")
    with pytest.raises(NotFoundError):
        store.worktrees.release(99, "t", 1, commit_sha=None, environment_hash=None)


def test_a_lease_without_an_environment_keeps_the_row_s(store: MetadataStore, worktree: Worktree, clock: Clock) -> None:
    """An environment_hash of None says nothing about what the workspace holds."""
    lease(store, worktree, clock, "t")
    store.worktrees.release(worktree.id, "t", 1, commit_sha="c1", environment_hash="e1")
    held = store.worktrees.lease(
        worktree_id=worktree.id,
        owner="o",
        lease_token="u",
        commit_sha="c2",
        environment_hash=None,
        expires_at=clock() + TTL,
    )
    assert held is not None and (held.commit_sha, held.environment_hash) == ("c2", "e1")
