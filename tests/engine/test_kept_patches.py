"""Stored patches: kept while a session needs them, and removed when none does or they are too many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.engine.kept_patches import remove_patches
from debug_server.errors import NotFoundError
from debug_server.model import SessionStatus
from debug_server.store import MetadataStore, open_store
from debug_server.worktrees import SessionPatch
from debug_server.worktrees.patches import load_patch, store_patch

SIZE = 16 << 10


@pytest.fixture
def store(database_url: str) -> Iterator[MetadataStore]:
    with open_store(database_url) as opened:
        yield opened


def stored(folder: Path, number: int, *, age: float = 1000.0) -> SessionPatch:
    """A patch that was stored some time ago."""
    patch = SessionPatch(f"{number:08}" * (SIZE // 8))
    path = store_patch(patch, folder)
    then = time.time() - age + number
    os.utime(path, (then, then))
    return patch


def is_kept(folder: Path, patch: SessionPatch) -> bool:
    try:
        return load_patch(patch.sha256, folder).data == patch.data
    except NotFoundError:
        return False


def test_what_no_session_names(store: MetadataStore, tmp_path: Path) -> None:
    """Patches of sessions stay, open or closed; others go, but not at once: their session may be about to be added."""
    closed, opened, nobodys, fresh = (stored(tmp_path, number) for number in range(4))
    for patch in (closed, opened):
        session = store.sessions.create(patch_hash=patch.sha256)
        if patch is closed:
            store.sessions.set_status(session.id, SessionStatus.COMPLETED)
    store_patch(fresh, tmp_path)  # again, now
    (tmp_path / ".dead.patch.1a2b").write_bytes(b"x")
    os.utime(tmp_path / ".dead.patch.1a2b", (1, 1))
    assert remove_patches(store, tmp_path, budget=1 << 30, always=False) == 0
    assert remove_patches(store, tmp_path, budget=None, always=True) >= SIZE
    assert [is_kept(tmp_path, patch) for patch in (closed, opened, nobodys, fresh)] == [True, True, False, True]
    assert not (tmp_path / ".dead.patch.1a2b").exists()


def test_beyond_the_budget(store: MetadataStore, tmp_path: Path) -> None:
    """The oldest of closed sessions go until the rest fits; what an open session needs stays, even beyond it."""
    patches = [stored(tmp_path, number) for number in range(6)]
    for number, patch in enumerate(patches):
        for is_closed in (True, False) if number == 0 else (number != 1,):
            session = store.sessions.create(patch_hash=patch.sha256)
            if is_closed:
                store.sessions.set_status(session.id, SessionStatus.COMPLETED)
    assert remove_patches(store, tmp_path, budget=4 * SIZE, always=False) == 2 * SIZE
    assert [is_kept(tmp_path, patch) for patch in patches] == [True, True, False, False, True, True]
    assert remove_patches(store, tmp_path, budget=1, always=False) == 2 * SIZE
    assert [is_kept(tmp_path, patch) for patch in patches] == [True, True, False, False, False, False]


def test_no_patch_yet(store: MetadataStore, tmp_path: Path) -> None:
    """Nothing to do is fine."""
    assert remove_patches(store, tmp_path / "none", budget=1, always=True) == 0
