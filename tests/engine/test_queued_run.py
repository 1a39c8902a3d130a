"""Runs that are queued in one step: in a plain directory with stdin from the start, or in a workspace leased later."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.engine import LocalEngine
from debug_server.model import CommandStatus, QueuedRun, SessionPlan, SessionStatus
from debug_server.runner.log_reader import LogReader
from debug_server.runner.spec import CommandSpec
from tests.engine.engines import running_engine
from tests.repositories import make_repository
from tests.running import MECHANISMS, Bench, eventually, missing_mechanism

MakeBench = Callable[..., Bench]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_stdin_is_there_from_the_start(make_bench: MakeBench, mechanism: str) -> None:
    """A text larger than a pipe arrives whole and ends, under each way to hold a tree; the session ends with it."""
    if reason := missing_mechanism(mechanism):
        pytest.skip(reason)
    bench = make_bench(containment=mechanism)
    text = "ä\0line\n" * 40_000
    with running_engine(bench) as engine:
        run = QueuedRun(
            spec=CommandSpec(["md5sum"], stdin_text=text), session_plan=SessionPlan(directory=str(bench.workspace))
        )
        command = engine.queue_run(run)
        ignored = engine.queue_run(
            QueuedRun(
                spec=CommandSpec(["true"], stdin_text=text), session_plan=SessionPlan(directory=str(bench.workspace))
            )
        )
        ended = engine.wait(command.id, 100.0)
        assert engine.wait(ignored.id, 100.0).status is CommandStatus.SUCCEEDED
    assert ended.status is CommandStatus.SUCCEEDED and ended.log_path is not None
    expected = subprocess.run(["md5sum"], input=text.encode(), capture_output=True, check=True).stdout
    with LogReader(ended.log_path) as reader:
        assert reader.tail(100) == expected
    eventually(lambda: bench.store.sessions.get(command.session_id).status is SessionStatus.COMPLETED)


def test_a_workspace_is_leased_when_the_turn_comes(bench: Bench, tmp_path: Path) -> None:
    """A run in a repository waits without a workspace, runs in a private checkout, and gives it back."""
    source = make_repository(tmp_path / "source", {"file": "content\n"})
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    repository = bench.store.repositories.create("source", str(source))
    spec = CommandSpec(["sh", "-c", "cat file && echo changed > file"])
    command = engine.queue_run(
        QueuedRun(spec=spec, repository_id=repository.id, session_plan=SessionPlan(commit="main"))
    )
    assert bench.store.sessions.get(command.session_id).worktree_id is None
    engine.start()
    try:
        assert engine.wait(command.id, 100.0).status is CommandStatus.SUCCEEDED
        eventually(lambda: bench.store.sessions.get(command.session_id).status is SessionStatus.COMPLETED)
    finally:
        engine.stop()
    assert (source / "file").read_text() == "content\n"
    assert all(row.lease_token is None for row in bench.store.worktrees.page(repository.id))
