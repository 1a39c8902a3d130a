"""A task as its users see it, made from the rows of its session and its command.

session open:    command pending -> queued;  any other -> running
session closed:  succeeded -> success;  failed -> failed;  cancelled -> canceled
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from debug_server.messages.tasks import ExecutionMode, RunnerTask, TaskStatus
from debug_server.model import Command, CommandStatus, ExitReason
from debug_server.service.logs import StreamTails
from debug_server.service.subject_runs import RunRows
from debug_server.service.views import log_bytes
from debug_server.tasks.docker_executor import CIDFILE

TASK = "task"  # key of the submitted task in its session's metadata
PREFIX = "task:"  # of the subject of the task's command
CANCELED = "canceled by api"
OUTPUT_BYTES = 64 << 10  # of each output stream, in a task

_ENDED = {
    CommandStatus.SUCCEEDED: TaskStatus.SUCCESS,
    CommandStatus.FAILED: TaskStatus.FAILED,
    CommandStatus.CANCELLED: TaskStatus.CANCELED,
}
_SHOWN_NAMES = {"docker": "docker sandbox"}
_TIMEOUTS = (ExitReason.TIMED_OUT, ExitReason.IDLE_TIMED_OUT)
_NOT_FOUND = ("was not found in PATH", "No such file or directory")  # messages for a missing program
_ENGINE_FAILED = 125  # docker's exit status when it could not run the container


def status_of(run: RunRows) -> TaskStatus:
    """The task's status."""
    if run.is_closed and run.command.status.terminal:
        return _ENDED[run.command.status]
    return TaskStatus.QUEUED if run.command.status is CommandStatus.PENDING else TaskStatus.RUNNING


def task(run: RunRows, *, ends: StreamTails, patch_id: int | None = None) -> RunnerTask:
    """The task; ``ends`` is the end of its output."""
    session, command, asked = run.session, run.command, _asked(run)
    status = status_of(run)
    over = run.is_closed and command.exit is not None
    cleanup = session.cleanup
    return RunnerTask(
        task_id=asked["task_id"],
        run_id=asked["run_id"],
        execution_mode=asked["execution_mode"],
        workspace=asked["workspace"],
        status=status,
        message=message(status, command, asked, ends),
        executor=asked["executor"],
        created_at=command.created_at,
        updated_at=max(command.updated_at, session.updated_at),
        started_at=command.started_at,
        finished_at=session.updated_at if over else None,
        exit_code=command.exit_code if over else None,
        container_id=_container(session.metadata),
        worktree_cleanup_attempted=cleanup is not None and cleanup.attempted,
        worktree_cleanup_succeeded=None if cleanup is None else cleanup.succeeded,
        worktree_cleanup_message=None if cleanup is None else cleanup.message,
        exit_reason=command.exit_reason.value if over and command.exit_reason is not None else None,
        exit=command.exit.to_json() if over and command.exit is not None else None,
        log_bytes=log_bytes(command),
        log_url=f"/tasks/{quote(asked['task_id'], safe='')}/log",
        command_id=command.id,
        session_id=session.id,
        patch_artifact_id=patch_id,
        **{name: getattr(ends, name) for name in StreamTails.__slots__},
    )


def _asked(run: RunRows) -> dict[str, Any]:
    """The submitted task; of rows that no submission made, what the subject of the command says."""
    submitted = run.session.metadata.get(TASK)
    unknown = {
        "task_id": (run.command.subject or "").removeprefix(PREFIX),
        "run_id": "",
        "execution_mode": ExecutionMode.NO_WORKSPACE.value,
        "workspace": None,
        "executor": "unknown",
    }
    return {**unknown, **(submitted if isinstance(submitted, Mapping) else {})}


def message(status: TaskStatus, command: Command, asked: Mapping[str, Any], ends: StreamTails) -> str:
    """The task's message."""
    executor = asked["executor"]
    name = _SHOWN_NAMES.get(executor, executor)
    match status:
        case TaskStatus.QUEUED:
            return "accepted"
        case TaskStatus.RUNNING:
            return "running"
        case TaskStatus.SUCCESS:
            return f"{name} execution completed"
        case TaskStatus.CANCELED:
            unstarted = command.started_at is None
            by_api = unstarted or (command.exit is not None and command.exit.message == CANCELED)
            return CANCELED if by_api else "canceled before completion"
    return _failure(name, command, asked, ends)


def _failure(name: str, command: Command, asked: Mapping[str, Any], ends: StreamTails) -> str:
    record = command.exit
    reason = record.message if record is not None else ""
    if command.exit_reason is ExitReason.SPAWN_FAILED:
        if command.started_at is None and asked["execution_mode"] == ExecutionMode.ISOLATED_WORKTREE:
            return f"isolated worktree setup failed: {reason}"
        if asked["executor"] in ("codex", "docker") and any(words in reason for words in _NOT_FOUND):
            return f"{asked['executor']} binary not found"
    if command.exit_reason in _TIMEOUTS:
        return f"{name} execution timed out"
    if command.exit_reason is ExitReason.NONZERO_EXIT:
        if asked["executor"] == "docker" and command.exit_code == _ENGINE_FAILED:
            lines = (ends.stderr or "").strip().splitlines()
            return f"{name} execution failed: {lines[0] if lines else 'the container engine does not answer'}"
        return f"{name} execution failed"
    return f"{name} execution failed: {reason}"


def _container(metadata: Mapping[str, Any]) -> str | None:
    if path := metadata.get(CIDFILE):
        with suppress(OSError):
            return Path(path).read_text(errors="replace").strip() or None
    return None
