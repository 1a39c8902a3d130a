"""The verbs of one-shot runs: a session for one command."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from debug_server import messages as m
from debug_server.errors import DebugServerError
from debug_server.model import Session, SessionStatus
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
        session = await self._session_verbs.find_by_key(caller, key, since)
        if session is None:
            return None
        rows = await self._call(self._store.commands.in_session, session.id)
        for row in rows:
            if row.idempotency_key == key:
                return m.RunReply(session=views.session(session), command=views.command(row))
        return await self._run_in(session, request, key) if session.is_open else None

    async def _run_in(self, session: Session, request: m.StartRun, key: str | None) -> m.RunReply:
        """Queue the run's one command; if that fails, the session is closed."""
        try:
            row = await self._call(partial(self._commands.add, closes_session=True), session.id, request, key)
        except DebugServerError:
            await self._call(self._engine.close_session, session, SessionStatus.FAILED)
            raise
        return m.RunReply(session=views.session(session), command=views.command(row))
