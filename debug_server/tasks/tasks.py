"""The verbs of host tasks over the service's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import partial

from debug_server import messages as m
from debug_server.config.tasks import TasksConfig
from debug_server.engine.own_places import PATCH_NAME
from debug_server.errors import ConflictError, NotFoundError
from debug_server.messages import ARTIFACTS_READ, COMMANDS_WRITE, SESSIONS_READ, SESSIONS_WRITE, Operation
from debug_server.model import Claim, CommandSpec, Limits, QueuedRun
from debug_server.runner.settings import RunnerPaths
from debug_server.service import LOCAL, Caller, Service
from debug_server.service.own_runs import RunRows
from debug_server.service.views import log_bytes, one_page
from debug_server.tasks import views
from debug_server.tasks.executors import Executors, Plan
from debug_server.tasks.models import (
    RunnerSubmit,
    RunnerTask,
    TaskId,
    TaskList,
    TaskPage,
    WaitTask,
)
from debug_server.tasks.modes import Place, find_place
from debug_server.tasks.targets import Targets

CALLBACK, CALLBACK_TOKEN = "callback", "callback_token"  # in the session's task, and among its secrets
_NO_TAILS = views.Tails()

SUBMIT = Operation(
    name="submit_task",
    request=RunnerSubmit,
    reply=RunnerTask,
    scopes=(COMMANDS_WRITE, SESSIONS_WRITE),
    idempotent=False,
    sentence="Queue a task.",
)
CANCEL = Operation(
    name="cancel_task",
    request=TaskId,
    reply=RunnerTask,
    scopes=(COMMANDS_WRITE,),
    idempotent=True,
    sentence="End a task.",
)


class Tasks:
    """Submit, look, wait, cancel, follow."""

    def __init__(self, service: Service, *, config: TasksConfig, paths: RunnerPaths) -> None:
        self._service = service
        self._config = config
        root = paths.artifacts_root
        self._executors = Executors(config, root / "containers")
        self._locks_dir = root.absolute() / "locks"
        self.targets = Targets(config.callback_allow)

    @property
    def executor(self) -> str:
        """Which one runs tasks outside containers."""
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
            return known  # by a process that died before it could answer
        plan, place = await asyncio.to_thread(self._prepared, submit)
        run = self._run(submit, plan, place, key)
        try:
            rows = await self._service.own_runs.queue(caller, run)
        except ConflictError as error:
            raise ConflictError(f"task {submit.task_id!r} cannot be queued: {error}") from error
        return views.task(rows, tails=_NO_TAILS)

    async def _submitted(self, caller: Caller, task_id: str, key: str) -> RunnerTask | None:
        try:
            rows = await self._find(caller, task_id)
        except NotFoundError:
            return None
        return await self._view(rows) if rows.command.idempotency_key == key else None

    def _prepared(self, submit: RunnerSubmit) -> tuple[Plan, Place]:
        place = find_place(
            submit, cleanup=self._config.cleanup_worktree, locks_dir=self._locks_dir, trust=self._service.trust
        )
        return self._executors.plan(submit), place

    def _run(self, submit: RunnerSubmit, plan: Plan, place: Place, key: str | None) -> QueuedRun:
        asked = {
            "task_id": submit.task_id,
            "run_id": submit.run_id,
            "execution_mode": submit.execution_mode.value,
            "workspace": submit.workspace.model_dump() if submit.workspace is not None else None,
            "executor": plan.executor,
            **({CALLBACK: submit.status_callback_url} if submit.status_callback_url is not None else {}),
        }
        secrets: Mapping[str, str] = {}
        if submit.status_callback_url is not None and submit.status_callback_token is not None:
            secrets = {CALLBACK_TOKEN: submit.status_callback_token}
        return QueuedRun(
            subject=f"{views.PREFIX}{submit.task_id}",
            spec=CommandSpec(
                plan.argv,
                plan.env,
                log_name="task",
                limits=Limits(wall_seconds=submit.timeout_seconds),
                pre_kill=plan.pre_kill,
                containers=plan.containers,
                stdin_text=plan.stdin_text,
            ),
            place=replace(place.plan, after=plan.after),
            session_metadata={views.TASK: asked, **plan.metadata},
            claims=[Claim(resource=f"{views.PREFIX}{submit.task_id}", waits=False), *place.claims],
            secrets=secrets,
            idempotency_key=key,
        )

    async def get(self, caller: Caller, request: TaskId) -> RunnerTask:
        """One task, or NotFoundError."""
        caller.require((SESSIONS_READ,))
        return await self._view(await self._find(caller, request.task_id))

    async def list(self, caller: Caller, request: TaskPage) -> TaskList:
        """The caller's tasks, oldest first."""
        caller.require((SESSIONS_READ,))
        rows = await self._service.own_runs.page(caller, views.PREFIX, after=request.after, limit=request.limit + 1)
        page, following = one_page(rows, request.limit, lambda row: row.command.id)
        items = [views.task(row, tails=_NO_TAILS) for row in page]
        wanted = [item for item in items if request.status in (None, item.status)]
        return TaskList(items=wanted, next_after=following)

    async def wait(self, caller: Caller, request: WaitTask) -> RunnerTask:
        """The task once it is over, or as it is at the deadline."""
        caller.require((SESSIONS_READ,))
        rows = await self._find(caller, request.task_id)
        async with self._service.audience.while_valid(caller):
            return await self._view(await self._service.own_runs.over(rows, request.timeout))

    async def cancel(self, caller: Caller, request: TaskId, key: str | None = None) -> RunnerTask:
        """End a task; returns when its tree is empty and its places are free. One that is over stays as it is."""
        reply = await self._service.once(caller, CANCEL, request, key, partial(self._cancel, caller, request))
        assert isinstance(reply, RunnerTask)
        return reply

    async def _cancel(self, caller: Caller, request: TaskId, _: str | None) -> RunnerTask:
        rows = await self._find(caller, request.task_id)
        return await self._view(await self._service.own_runs.cancel(rows, views.CANCELED))

    async def follow(self, caller: Caller, request: TaskId, offset: int) -> AsyncGenerator[m.LogPiece, None]:
        """What a task says from an offset on, until it has ended."""
        caller.require((SESSIONS_READ, ARTIFACTS_READ))
        rows = await self._find(caller, request.task_id)
        return self._service.logs.follow(caller, m.FollowLog(command_id=rows.command.id, offset=offset))

    async def stored(self, caller: Caller, request: TaskId, offset: int) -> AsyncGenerator[m.LogPiece, None]:
        """What it has said so far."""
        caller.require((SESSIONS_READ, ARTIFACTS_READ))
        rows = await self._find(caller, request.task_id)
        end = log_bytes(rows.command)
        return self._service.logs.pieces(caller, rows.command.id, offset, end)

    async def _find(self, caller: Caller, task_id: str) -> RunRows:
        try:
            return await self._service.own_runs.find(caller, f"{views.PREFIX}{task_id}")
        except NotFoundError as error:
            raise NotFoundError(f"there is no task {task_id!r}") from error

    async def _view(self, rows: RunRows) -> RunnerTask:
        """The whole of a task; its log is read where it cannot make the server deaf."""
        tails = await asyncio.to_thread(views.read_tails, rows.command)
        return views.task(rows, tails=tails, patch_id=await self._patch(rows))

    async def _patch(self, rows: RunRows) -> int | None:
        if rows.session.cleanup is None:
            return None
        found = await self._service.artifacts.page(LOCAL, m.SessionPage(session_id=rows.session.id))
        return next((item.id for item in found.items if item.name == PATCH_NAME), None)

    async def view_of(self, session_id: int) -> RunnerTask:
        """One task, for the server's own use."""
        return await self._view(await self._service.own_runs.of_session(session_id))
