"""A task as its users see it, from the rows of its session and its command.

session open:    command pending -> queued;  any other -> running
session closed:  succeeded -> success;  failed -> failed;  cancelled -> canceled
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from debug_server.errors import NotFoundError
from debug_server.model import Command, CommandStatus, ExitReason
from debug_server.runner.log_reader import LogReader
from debug_server.service.own_runs import RunRows
from debug_server.service.views import log_bytes
from debug_server.tasks.executors.docker import CIDFILE
from debug_server.tasks.models import ExecutionMode, RunnerTask, TaskStatus

TASK = "task"  # key of a session's metadata: what the task was submitted with
PREFIX = "task:"  # of the command's name
CANCELED = "canceled by api"
TAIL_BYTES = 64 << 10
_WINDOW = 1 << 20  # how far back from its end a log is searched for the tails of its two streams

_ENDED = {
    CommandStatus.SUCCEEDED: TaskStatus.SUCCESS,
    CommandStatus.FAILED: TaskStatus.FAILED,
    CommandStatus.CANCELLED: TaskStatus.CANCELED,
}
_SPOKEN = {"docker": "docker sandbox"}
_TIMEOUTS = (ExitReason.TIMED_OUT, ExitReason.IDLE_TIMED_OUT)
_NOT_FOUND = ("was not found in PATH", "No such file or directory")  # of a program, by name or by path
_ENGINE_FAILED = 125  # docker's own status when the container could not be run


@dataclass(frozen=True, slots=True, kw_only=True)
class Tails:
    """The ends of a log's two streams, and how long they are."""

    stdout: str | None = None
    stderr: str | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    stdout_truncated: bool = False
    stderr_truncated: bool = False


def status_of(run: RunRows) -> TaskStatus:
    """Where a task stands."""
    if run.over and run.command.status.terminal:
        return _ENDED[run.command.status]
    return TaskStatus.QUEUED if run.command.status is CommandStatus.PENDING else TaskStatus.RUNNING


def task(run: RunRows, *, tails: Tails, patch_id: int | None = None) -> RunnerTask:
    """The whole of it."""
    session, command, asked = run.session, run.command, run.session.metadata[TASK]
    status = status_of(run)
    over = run.over and command.exit is not None
    cleanup = session.cleanup
    return RunnerTask(
        task_id=asked["task_id"],
        run_id=asked["run_id"],
        execution_mode=asked["execution_mode"],
        workspace=asked["workspace"],
        status=status,
        message=message(status, command, asked, tails),
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
        **{name: getattr(tails, name) for name in Tails.__slots__},
    )


def message(status: TaskStatus, command: Command, asked: Mapping[str, Any], tails: Tails) -> str:
    """One sentence about where it stands."""
    executor = asked["executor"]
    spoken = _SPOKEN.get(executor, executor)
    match status:
        case TaskStatus.QUEUED:
            return "accepted"
        case TaskStatus.RUNNING:
            return "running"
        case TaskStatus.SUCCESS:
            return f"{spoken} execution completed"
        case TaskStatus.CANCELED:
            unstarted = command.started_at is None
            by_api = unstarted or (command.exit is not None and command.exit.message == CANCELED)
            return CANCELED if by_api else "canceled before completion"
    return _failure(spoken, command, asked, tails)


def _failure(spoken: str, command: Command, asked: Mapping[str, Any], tails: Tails) -> str:
    record = command.exit
    said = record.message if record is not None else ""
    if command.exit_reason is ExitReason.SPAWN_FAILED:
        if command.started_at is None and asked["execution_mode"] == ExecutionMode.ISOLATED_WORKTREE:
            return f"isolated worktree setup failed: {said}"
        if asked["executor"] in ("codex", "docker") and any(words in said for words in _NOT_FOUND):
            return f"{asked['executor']} binary not found"
    if command.exit_reason in _TIMEOUTS:
        return f"{spoken} execution timed out"
    if command.exit_reason is ExitReason.NONZERO_EXIT:
        if asked["executor"] == "docker" and command.exit_code == _ENGINE_FAILED:
            lines = (tails.stderr or "").strip().splitlines()
            return f"{spoken} execution failed: {lines[0] if lines else 'no container engine answers'}"
        return f"{spoken} execution failed"
    return f"{spoken} execution failed: {said}"


def read_tails(command: Command) -> Tails:
    """The last bytes of stdout and of stderr; reads a bounded part of the log."""
    if command.log_path is None:
        return Tails()
    try:
        reader = LogReader(command.log_path)
    except (NotFoundError, OSError):
        return Tails()
    with reader:
        start = max(0, reader.size() - _WINDOW)
        found = {"stdout": bytearray(), "stderr": bytearray(), "system": bytearray()}
        for segment in reader.segments(start):
            found[segment.stream] += segment.data
    ends = command.exit
    whole = start == 0
    counts = {
        "stdout": ends.stdout_bytes if ends is not None else len(found["stdout"]) if whole else None,
        "stderr": ends.stderr_bytes if ends is not None else len(found["stderr"]) if whole else None,
    }
    cut = {name: counts[name] is None or (counts[name] or 0) > TAIL_BYTES or not whole for name in counts}
    return Tails(
        stdout=_text(found["stdout"]),
        stderr=_text(found["stderr"]),
        stdout_bytes=counts["stdout"],
        stderr_bytes=counts["stderr"],
        stdout_truncated=cut["stdout"] and counts["stdout"] != len(found["stdout"][-TAIL_BYTES:]),
        stderr_truncated=cut["stderr"] and counts["stderr"] != len(found["stderr"][-TAIL_BYTES:]),
    )


def _text(data: bytearray) -> str:
    tail = bytes(data[-TAIL_BYTES:])
    if len(tail) < len(data):
        tail = tail.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character that was cut
    return tail.decode("utf-8", "replace")


def _container(metadata: Mapping[str, Any]) -> str | None:
    if path := metadata.get(CIDFILE):
        with suppress(OSError):
            return Path(path).read_text(errors="replace").strip() or None
    return None
