"""Fixtures of the tests of tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from debug_server.tasks import callbacks, executors
from tests.tasks.task_server import Receiver, TaskServer


@pytest.fixture
def make_server(
    tmp_path: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., TaskServer]]:
    """Servers with settings of the test's choice; a login shell reads nobody's profile."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(callbacks, "_TIMEOUT", 60.0)  # a receiver beside a busy test is slow, not away
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
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tasks of the mock executor begin their pauses when this file is there: until then they run, however long."""
    path = tmp_path / "gate"
    held = f"until [ -e {shlex.quote(str(path))} ]; do sleep 0.02; done"
    monkeypatch.setattr(executors, "_MOCK_SCRIPT", f"{held}; {executors._MOCK_SCRIPT}")
    return path


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Of callbacks."""
    found = Receiver()
    yield found
    found.close()
