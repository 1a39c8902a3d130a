"""The verbs of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from debug_server import messages as m
from debug_server.errors import ConflictError, DebuggerUnavailableError
from debug_server.messages import COMMANDS_WRITE
from debug_server.model import EnvironmentPlan, Session, SessionPlan, SessionStatus
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.verbs import Shared, Verbs
from debug_server.worktrees import SessionPatch

_STATUSES = {status.value: (status,) for status in SessionStatus} | {
    "open": (SessionStatus.PENDING, SessionStatus.RUNNING),
    "closed": (SessionStatus.COMPLETED, SessionStatus.FAILED, SessionStatus.CANCELLED),
}


class SessionVerbs(Verbs):
    """Sessions: a workspace of a commit and a patch, and the commands in it."""

    def __init__(self, shared: Shared, commands: CommandVerbs) -> None:
        super().__init__(shared)
        self._commands = commands

    async def open(
        self, caller: Caller, request: m.OpenSession, *, idempotency_key: str | None = None
    ) -> m.SessionReply:
        """Lease a workspace of a commit and a patch, then queue the request's commands in order."""
        self._shared.require_accepting()
        if request.commands:
            caller.require((COMMANDS_WRITE,))
        async with self._quotas.reserve(caller, commands=len(request.commands), sessions=1, workspaces=1):
            session = await self._call_git(self.lease, caller, request, idempotency_key)
            await self._commands.submit_lines(session.id, request, idempotency_key)
        return views.session(session)

    async def resume(self, caller: Caller, request: m.OpenSession, key: str, since: datetime) -> m.SessionReply | None:
        """Resume the request of a process that died; None if it had created nothing."""
        session = await self.find_by_key(caller, key, since)
        if session is None:
            return None
        if session.is_open:
            await self._commands.submit_lines(session.id, request, key)
        return views.session(session)

    def lease(self, caller: Caller, request: m.OpenSession | m.StartRun, key: str | None) -> Session:
        """Open the session with its workspace; its row keeps the key."""
        repository = self._registered(caller, request.repository)
        wanted = EnvironmentPlan.of(
            manifests=request.manifests, python=request.python, extras=request.extras, groups=request.groups
        )
        # If this process is killed before the run's command is queued, recovery closes the session.
        process = self._engine.owner if isinstance(request, m.StartRun) else None
        expires = getattr(request, "expires_in", None)
        patch = request.patch_base64 or request.patch
        return self._sessions.open(
            repository,
            commit=request.commit_sha,
            owner=caller.name,
            patch=SessionPatch(patch) if patch else None,
            requested_by=getattr(request, "requested_by", None) or caller.name,
            owner_token_id=caller.token_id,
            expires_at=datetime.now(UTC) + timedelta(seconds=expires) if expires else None,
            idempotency_key=key,
            plan=SessionPlan(environment=wanted, process=process),
            metadata=request.metadata,
        )

    def lease_again(self, caller: Caller, earlier: Session, key: str | None) -> Session:
        """Open a session like an earlier one, for one command."""
        return self._sessions.open_again(
            earlier,
            owner=caller.name,
            owner_token_id=caller.token_id,
            idempotency_key=key,
            process=self._engine.owner,
        )

    async def find_by_key(self, caller: Caller, key: str, since: datetime) -> Session | None:
        """The session that an attempt of this keyed request opened before its process died."""
        return await self._call(
            self._store.sessions.by_idempotency_key, key, owner_token_id=caller.token_id, since=since
        )

    async def get(self, caller: Caller, request: m.SessionRef) -> m.SessionReply:
        """One session."""
        return views.session(await self._access.session(caller, request.session_id))

    async def page(self, caller: Caller, request: m.ListSessions) -> m.SessionList:
        """A page of the caller's sessions, or of all for an admin."""
        rows = await self._call(
            self._store.sessions.page,
            status=list(dict.fromkeys(status for word in request.status for status in _STATUSES[word])),
            repository_id=await self._repository_id(caller, request.repository),
            owner_token_id=None if caller.is_admin else caller.token_id,
            after=request.after,
            limit=request.limit + 1,
            newest=request.newest,
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.SessionList(items=[views.session(row) for row in rows], next_after=following)

    async def fork(self, caller: Caller, request: m.ForkSession) -> m.SessionList:
        """Open copies of the session in its current state."""
        self._shared.require_accepting()
        session = await self._access.use_session(caller, request.session_id)
        async with self._quotas.reserve(caller, sessions=request.count, workspaces=request.count):
            rows = await self._call_git(self._sessions.fork, session, request.count, owner=caller.name)
        return m.SessionList(items=[views.session(row) for row in rows])

    async def reset(self, caller: Caller, request: m.SessionRef) -> m.SessionReply:
        """Reset the workspace to commit and patch; not while a command runs in it."""
        session = await self._access.use_session(caller, request.session_id)
        running = await self._call(self._store.commands.unfinished, session.id)
        if running:
            raise ConflictError(f"session {session.id} has an unfinished command ({running[0].id}): cancel it first")
        await self._call_git(self._sessions.reset, session)
        return views.session(session)

    async def diff(self, caller: Caller, request: m.SessionRef) -> m.SessionDiff:
        """The changes in the workspace as a patch."""
        data = await self.diff_bytes(caller, request)
        try:
            return m.SessionDiff(session_id=request.session_id, patch=data.decode(), exact=True)
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            return m.SessionDiff(session_id=request.session_id, patch=text, exact=False, patch_base64=data)

    async def diff_bytes(self, caller: Caller, request: m.SessionRef) -> bytes:
        """The changes in the workspace as the exact bytes of a patch."""
        session = await self._access.use_session(caller, request.session_id)
        if not session.is_open:
            raise ConflictError(
                f"session {session.id} is closed, and its workspace is gone: take the diff before you close a session"
            )
        return await self._call_git(self._sessions.diff, session)

    async def close(self, caller: Caller, request: m.SessionRef) -> m.Message:
        """Cancel its commands and release the workspace; a closed session is left unchanged."""
        session = await self._access.session(caller, request.session_id)
        if session.is_open:
            await self._call(self._engine.close_session, session)
        return m.Message(message=f"session {session.id} is closed")

    async def debug(self, caller: Caller, request: m.DebugAction) -> m.Message:
        """DebuggerUnavailableError: there is no debugger yet."""
        await self._access.session(caller, request.session_id)
        raise DebuggerUnavailableError(f"no debugger is attached to session {request.session_id}")

    async def metadata_of(self, session_id: int) -> Mapping[str, Any]:
        """The metadata of a session."""
        return (await self._read(self._store.sessions.get, session_id)).metadata

    async def secrets_of(self, session_id: int) -> Mapping[str, str]:
        """The decrypted secrets of a session."""
        return await self._call(self._store.sessions.secrets, session_id)
