"""Fixtures of the HTTP tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import unmount_below
from tests.surfaces.http.serving import Process, Served


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """A folder; whatever a failing test left mounted below it is unmounted."""
    try:
        yield tmp_path
    finally:
        unmount_below(tmp_path)


@pytest.fixture
def served(base: Path, nothing_left: None) -> Iterator[Served]:
    """A server in a thread, with a small repository ``repo``."""
    found = Served(base)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def processes(base: Path) -> Iterator[Callable[..., Process]]:
    """Starts servers in processes of their own, over one folder."""
    with ExitStack() as closing:

        def make(**options: object) -> Process:
            process = Process(base, **options)  # type: ignore[arg-type]
            closing.callback(process.close)
            return process

        yield make


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests of a module that leave each other alone."""
    root = tmp_path_factory.mktemp("shared")
    try:
        found = Served(root)
        try:
            yield found
        finally:
            found.close()
    finally:
        unmount_below(root)
