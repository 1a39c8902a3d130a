"""Engines over a test's own folder, and waiting for what they start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from debug_server.app import Local
from debug_server.config import WorkspacesConfig
from debug_server.engine import LocalEngine
from debug_server.model import Command, CommandStatus
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.running import VISIBLE, Bench, eventually


@contextmanager
def running_engine(bench: Bench) -> Iterator[LocalEngine]:
    """An engine over a bench that works for the block."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def await_running(bench: Bench, commands: Sequence[Command]) -> None:
    """Wait until every row says ``running``."""

    def running() -> bool:
        return all(bench.store.commands.get(row.id).status is CommandStatus.RUNNING for row in commands)

    eventually(running, what="running commands")


def open_local(root: Path, max_worktrees: int = 16) -> Local:
    """Everything below ``root``, which several processes may open; leases last for the default of 30 minutes."""
    settings = RunnerSettings(
        RunnerPaths.from_root(root / "artifacts"),
        isolation=VISIBLE,
        workspaces=WorkspacesConfig(max_worktrees=max_worktrees),
    )
    return Local(settings, str(root / "store.db"))
