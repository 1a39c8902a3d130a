"""The verbs of host tasks: each calls the service's verbs for runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from debug_server import messages as m
from debug_server.config.tasks import TasksConfig
from debug_server.errors import ConflictError, NotFoundError
from debug_server.messages import ARTIFACTS_READ, SESSIONS_READ
from debug_server.messages.task_operations import TASK_OPERATIONS
from debug_server.messages.tasks import (
    RunnerSubmit,
    RunnerTask,
    TaskId,
    TaskList,
    TaskPage,
    WaitTask,
)
from debug_server.model import UNCOMMITTED_PATCH, Claim, CommandSpec, Limits, QueuedRun
from debug_server.model.isolation import Level
from debug_server.service import LOCAL, Caller, Service
from debug_server.service.logs import StreamTails
from debug_server.service.subject_runs import RunRows
from debug_server.service.views import log_bytes, one_page
from debug_server.sockets.trust import TrustedServerUser
from debug_server.tasks import views
from debug_server.tasks.executors import Executors
from debug_server.tasks.modes import TaskPlace, find_place
from debug_server.tasks.targets import Targets

CALLBACK, CALLBACK_TOKEN = "callback", "callback_token"  # keys in the session's task and in its secrets
_NO_OUTPUT = StreamTails()
_NAME_RECEIVER = "set HOST_RUNNER_CALLBACK_UID={uid} in debug-server's environment; the callback is retried"

SUBMIT, CANCEL = TASK_OPERATIONS["submit_task"], TASK_OPERATIONS["cancel_task"]


class Tasks:
    """Submit, get, list, wait for, cancel and follow tasks."""

    def __init__(
        self, service: Service, *, config: TasksConfig, containers_dir: Path, isolation: Level = "none"
    ) -> None:
        """``containers_dir`` gets a file with the id of each container; ``isolation`` is the level of the commands.

        A task without a workspace runs in a scratch folder, but its program is the operator's: it may need a home.
        """
        self._service = service
        self._isolation = isolation
        self._config = config
        self._executors = Executors(config, containers_dir)
        self.targets = Targets(config.callback_allow)
        self.receivers = TrustedServerUser(uid=config.callback_uid, advice=_NAME_RECEIVER)

    @property
    def executor(self) -> str:
        """The name of the executor of tasks outside containers."""
        return self._executors.name

    async def submit(self, caller: Caller, submit: RunnerSubmit, key: str | None = None) -> RunnerTask:
        """Queue a task; ConflictError while its id, its branch or its worktree is in use."""
        reply = await self._service.once(caller, SUBMIT, submit, key, partial(self._submit, caller, submit))
        assert isinstance(reply, RunnerTask)
        return reply

    async def _submit(self, caller: Caller, submit: RunnerSubmit, key: str | None) -> RunnerTask:
        if submit.status_callback_url is not None:
            self.targets.check_url(submit.status_callback_url)
        if key is not None and (known := await self._submitted(caller, submit.task_id, key)) is not None:
            return known  # a process submitted it and died before it answered
        place = await find_place(submit, self._service.branch_trees, cleanup=self._config.cleanup_worktree)
        try:
            rows = await self._service.subject_runs.queue(caller, lambda: self._run(submit, place, key))
        except ConflictError as error:
            raise ConflictError(f"task {submit.task_id!r} cannot be queued: {error}") from error
        return views.task(rows, ends=_NO_OUTPUT)

    async def _submitted(self, caller: Caller, task_id: str, key: str) -> RunnerTask | None:
        try:
            rows = await self._find(caller, task_id)
        except NotFoundError:
            return None
        return await self._view(rows) if rows.command.idempotency_key == key else None

    def _run(self, submit: RunnerSubmit, place: TaskPlace, key: str | None) -> QueuedRun:
        command = self._executors.command(submit)
        asked = {
            "task_id": submit.task_id,
            "run_id": submit.run_id,
            "execution_mode": submit.execution_mode.value,
            "workspace": submit.workspace.model_dump() if submit.workspace is not None else None,
            "executor": command.executor,
            **({CALLBACK: submit.status_callback_url} if submit.status_callback_url is not None else {}),
        }
        secrets: Mapping[str, str] = {}
        if submit.status_callback_url is not None and submit.status_callback_token is not None:
            secrets = {CALLBACK_TOKEN: submit.status_callback_token}
        return QueuedRun(
            subject=f"{views.PREFIX}{submit.task_id}",
            spec=CommandSpec(
                command.argv,
                command.env,
                log_name="task",
                limits=Limits(wall_seconds=submit.timeout_seconds),
                pre_kill=command.pre_kill,
                containers=command.containers,
                isolation=self._isolation,
                stdin_text=command.stdin_text,
            ),
            session_plan=replace(place.plan, after=command.after),
            session_metadata={views.TASK: asked, **command.metadata},
            claims=[Claim(resource=f"{views.PREFIX}{submit.task_id}", waits=False), *place.claims],
            secrets=secrets,
            idempotency_key=key,
        )

    async def get(self, caller: Caller, request: TaskId) -> RunnerTask:
        """One task, or NotFoundError."""
        caller.require((SESSIONS_READ,))
        return await self._view(await self._find(caller, request.task_id))

    async def list(self, caller: Caller, request: TaskPage) -> TaskList:
        """The caller's tasks."""
        caller.require((SESSIONS_READ,))
        rows = await self._service.subject_runs.page(
            caller, views.PREFIX, after=request.after, limit=request.limit + 1, newest=request.newest
        )
        page, following = one_page(rows, request.limit, lambda row: row.command.id)
        items = [views.task(row, ends=_NO_OUTPUT) for row in page]
        wanted = [item for item in items if request.status in (None, item.status)]
        return TaskList(items=wanted, next_after=following)

    async def wait(self, caller: Caller, request: WaitTask) -> RunnerTask:
        """The task once it is over, or as it is when the time is up."""
        caller.require((SESSIONS_READ,))
        rows = await self._find(caller, request.task_id)
        async with self._service.followers.while_valid(caller):
            return await self._view(await self._service.subject_runs.wait(rows, request.timeout))

    async def cancel(self, caller: Caller, request: TaskId, key: str | None = None) -> RunnerTask:
        """Cancel a task; returns when all its processes have ended. A task that is over stays unchanged."""
        reply = await self._service.once(caller, CANCEL, request, key, partial(self._cancel, caller, request))
        assert isinstance(reply, RunnerTask)
        return reply

    async def _cancel(self, caller: Caller, request: TaskId, _: str | None) -> RunnerTask:
        rows = await self._find(caller, request.task_id)
        return await self._view(await self._service.subject_runs.cancel(rows, views.CANCELED))

    async def follow(self, caller: Caller, request: TaskId, offset: int) -> AsyncGenerator[m.LogPiece, None]:
        """The output of a task from an offset on, until it has ended."""
        caller.require((SESSIONS_READ, ARTIFACTS_READ))
        rows = await self._find(caller, request.task_id)
        return self._service.logs.follow(caller, m.FollowLog(command_id=rows.command.id, offset=offset))

    async def stored(self, caller: Caller, request: TaskId, offset: int) -> AsyncGenerator[m.LogPiece, None]:
        """The output so far, from an offset on."""
        caller.require((SESSIONS_READ, ARTIFACTS_READ))
        rows = await self._find(caller, request.task_id)
        end = log_bytes(rows.command)
        return self._service.logs.pieces(caller, rows.command.id, offset, end)

    async def _find(self, caller: Caller, task_id: str) -> RunRows:
        try:
            return await self._service.subject_runs.find(caller, f"{views.PREFIX}{task_id}")
        except NotFoundError as error:
            raise NotFoundError(f"there is no task {task_id!r}", what="task") from error

    async def _view(self, rows: RunRows) -> RunnerTask:
        ends = await self._service.logs.tails(rows.command, views.OUTPUT_BYTES)
        return views.task(rows, ends=ends, patch_id=await self._patch(rows))

    async def _patch(self, rows: RunRows) -> int | None:
        if rows.session.cleanup is None:
            return None
        found = await self._service.artifacts.page(LOCAL, m.SessionListRequest(session_id=rows.session.id))
        return next((item.id for item in found.items if item.name == UNCOMMITTED_PATCH), None)

    async def view_of(self, session_id: int) -> RunnerTask:
        """The task of a session, for callbacks."""
        return await self._view(await self._service.subject_runs.of_session(session_id))
