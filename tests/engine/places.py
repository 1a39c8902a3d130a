"""One machine of a test's own, which several processes of the test open."""

from __future__ import annotations

from pathlib import Path

from debug_server.app import Local
from debug_server.config import WorkspacesConfig
from debug_server.runner.settings import RunnerPaths, RunnerSettings


def open_local(root: Path, max_worktrees: int = 16) -> Local:
    """Everything below ``root``; leases last for the default of 30 minutes."""
    settings = RunnerSettings(
        RunnerPaths.from_root(root / "artifacts"), workspaces=WorkspacesConfig(max_worktrees=max_worktrees)
    )
    return Local(settings, str(root / "store.db"))
