"""The verbs of one-shot runs: a session for one command."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from debug_server import messages as m
from debug_server.errors import ConflictError, DebugServerError, InvalidInputError
from debug_server.model import Command, Session, SessionStatus
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.sessions import SessionVerbs
from debug_server.service.verbs import Shared, Verbs
from debug_server.worktrees.artifact_files import check_patterns


class RunVerbs(Verbs):
    """Runs: one command in a session of its own."""

    def __init__(self, shared: Shared, sessions: SessionVerbs, commands: CommandVerbs) -> None:
        super().__init__(shared)
        self._session_verbs = sessions
        self._commands = commands

    async def start(self, caller: Caller, request: m.StartRun, *, idempotency_key: str | None = None) -> m.RunReply:
        """Open a session and queue its one command; the session is closed when the command has ended."""
        self._shared.require_accepting()
        check_patterns(request.artifacts)
        async with self._quotas.reserve(caller, sessions=1, commands=1, workspaces=1):
            session = await self._call_git(self._session_verbs.lease, caller, request, idempotency_key)
            return await self._run_in(session, request, idempotency_key)

    async def resume(self, caller: Caller, request: m.StartRun, key: str, since: datetime) -> m.RunReply | None:
        """Resume the request of a process that died; None if it had created nothing.

        A session that was closed without a command is ignored: the run starts again.
        """
        return await self._resume(caller, request, key, since)

    async def _resume(self, caller: Caller, request: m.CommandRequest, key: str, since: datetime) -> m.RunReply | None:
        session = await self._session_verbs.find_by_key(caller, key, since)
        if session is None:
            return None
        rows = await self._call(self._store.commands.in_session, session.id)
        for row in rows:
            if row.idempotency_key == key:
                return m.RunReply(session=views.session(session), command=views.command(row))
        return await self._run_in(session, request, key) if session.is_open else None

    async def rerun(self, caller: Caller, request: m.RerunCommand, *, idempotency_key: str | None = None) -> m.RunReply:
        """Run an earlier command again, in a new session that is closed when it has ended."""
        self._shared.require_accepting()
        earlier = await self._access.command(caller, request.command_id)
        session = await self._access.session(caller, earlier.session_id)
        again = await self._call(self._again, earlier, session, request)
        workspaces = 0 if session.plan.directory or session.plan.scratch else 1
        async with self._quotas.reserve(caller, sessions=1, commands=1, workspaces=workspaces):
            opened = await self._call_git(self._session_verbs.lease_again, caller, session, idempotency_key)
            return await self._run_in(opened, again, idempotency_key)

    async def resume_rerun(
        self, caller: Caller, request: m.RerunCommand, key: str, since: datetime
    ) -> m.RunReply | None:
        """Resume the request of a process that died; None if it had created nothing."""
        earlier = await self._access.command(caller, request.command_id)
        session = await self._access.session(caller, earlier.session_id)
        return await self._resume(caller, await self._call(self._again, earlier, session, request), key, since)

    def _again(self, command: Command, session: Session, request: m.RerunCommand) -> m.CommandRequest:
        """The request of an earlier command; ConflictError if it was not a command of its own."""
        if command.subject is not None or command.plan.worker is not None:
            owner = "a supervised worker" if command.plan.worker is not None else command.subject
            raise ConflictError(f"command {command.id} cannot be run again by itself: it belongs to {owner}")
        if missing := [name for name in command.env_names if name not in request.env]:
            raise InvalidInputError(
                f"command {command.id} had the variables {', '.join(missing)}: give their values again,"
                " because values are not kept after the end",
                field="env",
            )
        plan = command.plan
        return m.CommandRequest(
            argv=list(command.argv),
            cwd=self._inside(command.cwd, session),
            env=request.env,
            log_name=command.log_name,
            limits=m.LimitsRequest(**command.limits.requested()),
            require=list(plan.require),
            isolation=plan.isolation,
            network=plan.network,
            secrets=list(plan.secrets),
            artifacts=list(plan.artifacts),
            tty=command.tty,
            stdin=plan.stdin and not plan.inline,  # the caller of a foreground run is gone
            priority=command.priority,
        )

    def _inside(self, cwd: str | None, session: Session) -> str | None:
        """The folder of a command, relative to the workspace that it had."""
        if cwd is None or session.worktree_id is None or not Path(cwd).is_absolute():
            return cwd
        root = Path(self._store.worktrees.get(session.worktree_id).path)
        return str(Path(cwd).relative_to(root)) if Path(cwd).is_relative_to(root) else cwd

    async def _run_in(self, session: Session, request: m.CommandRequest, key: str | None) -> m.RunReply:
        """Queue the run's one command; if that fails, the session is closed."""
        try:
            row = await self._call(partial(self._commands.add, closes_session=True), session.id, request, key)
        except DebugServerError:
            await self._call(self._engine.close_session, session, SessionStatus.FAILED)
            raise
        return m.RunReply(session=views.session(session), command=views.command(row))
