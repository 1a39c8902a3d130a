"""Fixtures of the tests of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.serving import Receiver, TaskServer


@pytest.fixture
def make_server(
    tmp_path: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TaskServer]]:
    """Servers with settings of the test's choice; a login shell reads nobody's profile."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made: list[TaskServer] = []

    def make(**settings: Any) -> TaskServer:
        made.append(TaskServer(tmp_path / f"server{len(made)}", **settings))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(make_server: Callable[..., TaskServer]) -> TaskServer:
    """With the mock executor."""
    return make_server()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Of callbacks."""
    found = Receiver()
    yield found
    found.close()
