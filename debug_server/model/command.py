"""A command's state machine.

    pending --claim/start--> running --exit--> succeeded | failed | cancelled
       |                                            ^
       +------------- cancel, spawn failure --------+

A terminal state is final. The store enforces the same rules with compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from debug_server.errors import ConflictError
from debug_server.model.exit import ExitReason, ExitRecord
from debug_server.model.limits import Limits
from debug_server.model.plans import CommandPlan


class CommandStatus(StrEnum):
    """The state of a command."""

    PENDING = "pending"  # waiting in the queue, or claimed and being prepared
    RUNNING = "running"  # its keeper has a handle on disk
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self in _TERMINAL


_TERMINAL = frozenset({CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.CANCELLED})
_NEXT = {
    CommandStatus.PENDING: frozenset({CommandStatus.RUNNING, CommandStatus.FAILED, CommandStatus.CANCELLED}),
    CommandStatus.RUNNING: _TERMINAL,
}


def check_transition(before: CommandStatus, after: CommandStatus) -> CommandStatus:
    """Return ``after`` if ``before`` may become it, else raise ConflictError."""
    if after not in _NEXT.get(before, frozenset()):
        raise ConflictError(f"a {before} command cannot become {after}")
    return after


def status_for(reason: ExitReason) -> CommandStatus:
    """The terminal status that an exit reason means."""
    if reason is ExitReason.EXITED:
        return CommandStatus.SUCCEEDED
    if reason is ExitReason.CANCELLED:
        return CommandStatus.CANCELLED
    return CommandStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One row of the commands table."""

    id: int
    session_id: int
    sequence: int  # 1, 2, 3 within its session
    argv: tuple[str, ...]
    cwd: str | None  # relative to the workspace, or absolute inside it
    env_names: tuple[str, ...]  # names only: values are sealed until the command has ended
    log_name: str
    limits: Limits
    status: CommandStatus
    attempt: int  # 0 until claimed; each claim adds one
    owner: str | None  # the engine that claimed it
    priority: int  # higher first
    queue_key: str  # commands of one key share a concurrency limit
    key_limit: int
    tty: bool
    cancel_requested: bool
    idempotency_key: str | None
    plan: CommandPlan = field(default_factory=CommandPlan)
    metadata: dict[str, Any] = field(default_factory=dict)  # the caller's
    log_path: str | None
    exit_code: int | None
    exit_reason: ExitReason | None
    exit: ExitRecord | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    subject: str | None = None  # the name under which the requesting part finds it; also the subject of its events
