"""Dry runs: plans a command without writing or starting anything, except for a probe of this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from debug_server.engine.workspace import SessionWorkspace, session_workspace
from debug_server.errors import InvalidInputError
from debug_server.model import Command, CommandSpec, CommandStatus
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.planning import Job, Planner
from debug_server.runner.settings import RunnerSettings, shell_command
from debug_server.runner.worker import session_number
from debug_server.store import MetadataStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The plan of a command."""

    argv: Sequence[str]
    cwd: Path
    log_path: str  # with <id> in place of the command's id
    mechanism: str  # the containment mechanism
    controllers: Sequence[str]
    limits: Mapping[str, dict[str, Any]]  # requested limits, and what would enforce each
    env: Mapping[str, str]


class DryRuns:
    """Plans commands; opens the store only to find a session's workspace, because that may create the database."""

    def __init__(self, *, settings: RunnerSettings, open_store: Callable[[], MetadataStore]) -> None:
        self._settings = settings
        self._open_store = open_store

    def plan(self, text: str, *, session_id: str | None) -> DryRun:
        """Plan a shell command line, in a session's workspace or in the current directory."""
        settings = self._settings
        spec = CommandSpec(shell_command(settings.default_shell, text), limits=settings.limits)
        command = _unsaved_row(spec, session_number(session_id or 0))
        lease = self._workspace(session_id)
        with KeeperPool(containment=settings.containment) as pool:
            planner = Planner(settings, pool)
            order = planner.order(Job(command=command, spec=spec, lease=lease), {}, planner.log_path(command))
            capabilities = pool.capabilities
        return DryRun(
            argv=order.argv,
            cwd=order.cwd,
            log_path=str(order.log_path).replace("-0.log", "-<id>.log"),
            mechanism=capabilities.mechanism,
            controllers=sorted(capabilities.controllers),
            limits=order.limits,
            env=order.env,
        )

    def _workspace(self, session_id: str | None) -> SessionWorkspace:
        if session_id is not None:
            store = self._open_store()
            with contextlib.suppress(InvalidInputError):
                return session_workspace(store.worktrees, store.sessions.get(session_number(session_id)))
        return SessionWorkspace(path=Path.cwd())


def _unsaved_row(spec: CommandSpec, session_id: int) -> Command:
    now = datetime.now(UTC)
    return Command(
        id=0,
        session_id=session_id,
        sequence=0,
        argv=tuple(spec.argv),
        cwd=None,
        env_names=(),
        log_name=spec.log_name,
        limits=spec.effective_limits,
        status=CommandStatus.PENDING,
        attempt=0,
        owner=None,
        priority=0,
        queue_key="",
        key_limit=1,
        tty=False,
        cancel_requested=False,
        idempotency_key=None,
        log_path=None,
        exit_code=None,
        exit_reason=None,
        exit=None,
        created_at=now,
        updated_at=now,
        started_at=None,
        finished_at=None,
    )
