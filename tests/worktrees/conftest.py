"""Fixtures of the workspace tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_server.disk import detach, list_mounts
from debug_server.worktrees import WorktreePool
from tests.worktrees.places import BACKENDS, Remote, missing_for, open_pool, small_remote

MakePool = Callable[..., WorktreePool]


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A directory of the test's own; whatever a failing test left mounted below it is unmounted."""
    yield tmp_path
    for mount in reversed(list_mounts(tmp_path)):
        detach(mount.target)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, base: Path) -> str:
    """Each backend in turn; the overlay only where it can be mounted."""
    name = str(request.param)
    if reason := missing_for(name, base):
        pytest.skip(f"overlay: {reason}")
    return name


@pytest.fixture
def remote(base: Path) -> Remote:
    """A small repository."""
    return small_remote(base / "remote")


@pytest.fixture
def make_pool(base: Path, remote: Remote, backend: str) -> MakePool:
    """Opens pools of the small repository, all over the same store and folders."""

    def make(**changes: Any) -> WorktreePool:
        return open_pool(base, remote, backend, **changes)

    return make


@pytest.fixture
def pool(make_pool: MakePool) -> WorktreePool:
    """A pool of the small repository."""
    return make_pool()
