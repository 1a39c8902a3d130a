"""Fixtures of the HTTP tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.worktrees.mount import detach, list_mounts
from tests.surfaces.http.serving import Process, Served


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A folder; whatever a failing test left mounted below it is unmounted."""
    yield tmp_path
    for mount in reversed(list_mounts(tmp_path)):
        detach(mount.target)


@pytest.fixture
def served(base: Path, nothing_left: None) -> Iterator[Served]:
    """A server in a thread, with a small repository ``repo``."""
    found = Served(base)
    yield found
    found.close()


@pytest.fixture
def processes(base: Path) -> Iterator[Callable[..., Process]]:
    """Starts servers in processes of their own, over one folder."""
    made: list[Process] = []

    def make(**options: object) -> Process:
        made.append(Process(base, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for process in made:
        process.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests of a module that leave each other alone."""
    root = tmp_path_factory.mktemp("shared")
    found = Served(root)
    yield found
    found.close()
    for mount in reversed(list_mounts(root)):
        detach(mount.target)
