"""The table of operations on host tasks, which are served over HTTP: name, route, messages and scopes."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.messages import base, logs
from debug_server.messages.operations import Operation
from debug_server.messages.routes import Route
from debug_server.messages.scopes import ARTIFACTS_READ, COMMANDS_WRITE, SESSIONS_READ, SESSIONS_WRITE
from debug_server.messages.tasks import FollowTaskLog, RunnerSubmit, RunnerTask, TaskId, TaskList, TaskPage, WaitTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOperation(Operation):
    """One row of the table."""

    route: Route


def _row(
    name: str,
    line: str,
    messages: tuple[type[base.Request], type[base.Reply]],
    summary: str,
    *scopes: str,
    keyed: bool = False,
) -> TaskOperation:
    return TaskOperation(
        name=name,
        route=Route.of(line),
        request=messages[0],
        reply=messages[1],
        summary=summary,
        scopes=scopes,
        idempotent=not keyed,
    )


_ROWS = (
    _row(
        "submit_task",
        "POST /tasks/submit",
        (RunnerSubmit, RunnerTask),
        "Queue a task.",
        COMMANDS_WRITE,
        SESSIONS_WRITE,
        keyed=True,
    ),
    _row("list_tasks", "GET /tasks", (TaskPage, TaskList), "List the caller's tasks.", SESSIONS_READ),
    _row("get_task", "GET /tasks/{task_id}", (TaskId, RunnerTask), "Get a task.", SESSIONS_READ),
    _row(
        "wait_task",
        "GET /tasks/{task_id}/wait",
        (WaitTask, RunnerTask),
        "Wait until a task has ended or the timeout is over; `ended` says which.",
        SESSIONS_READ,
    ),
    _row(
        "cancel_task",
        "POST /tasks/{task_id}/cancel",
        (TaskId, RunnerTask),
        "Cancel a task; returns when its processes have ended. An ended task is returned unchanged.",
        COMMANDS_WRITE,
    ),
    _row(
        "read_task_log",
        "GET /tasks/{task_id}/log",
        (FollowTaskLog, logs.LogPiece),
        "Get a task's output as bytes.",
        SESSIONS_READ,
        ARTIFACTS_READ,
    ),
    _row(
        "follow_task_log",
        "GET /tasks/{task_id}/log.ndjson",
        (FollowTaskLog, logs.LogPiece),
        "Get a task's output as JSON lines; with follow=true until the task has ended.",
        SESSIONS_READ,
        ARTIFACTS_READ,
    ),
    _row(
        "task_log_events",
        "GET /tasks/{task_id}/log/events",
        (FollowTaskLog, logs.LogPiece),
        "Follow a task's output as server-sent events; the last one is the task.",
        SESSIONS_READ,
        ARTIFACTS_READ,
    ),
)

TASK_OPERATIONS = {row.name: row for row in _ROWS}
