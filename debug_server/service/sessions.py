"""The verbs of repositories and sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from debug_server.errors import ConflictError, DebuggerUnavailableError, NotFoundError
from debug_server.model import EnvironmentPlan, Repository, Session, SessionPlan, SessionStatus, check_name
from debug_server.service import messages as m
from debug_server.service import views
from debug_server.service.base import ServicePart
from debug_server.service.caller import Caller
from debug_server.worktrees import SessionPatch
from debug_server.worktrees.mirror import check_remote_url, default_branch
from debug_server.worktrees.opening import check_repository_settings

IDEMPOTENCY_KEY = "idempotency_key"  # in a session's metadata: the keyed request that opened it
_PAGE = 500
_ASK_SECONDS = 20.0  # for a remote's default branch: whoever registers it waits
_BRANCH = "main"  # of a remote that cannot be asked


class SessionVerbs(ServicePart):
    """Repositories and sessions."""

    async def register_repository(self, caller: Caller, request: m.RegisterRepository) -> m.RepositoryReply:
        """Register a git remote; the same registration again is the one that is there."""
        check_name(request.name, what="repository name")
        return views.repository(await self._call_git(self._register, request))

    def _register(self, request: m.RegisterRepository) -> Repository:
        remote = check_remote_url(request.remote_url)
        bound = check_repository_settings(request.settings).get("fetch_timeout", _ASK_SECONDS)
        if (known := self._known_as(request)) is not None:
            return known
        branch = (
            request.default_branch
            or default_branch(remote, timeout=min(bound, _ASK_SECONDS), trust=self._sessions.trust)
            or _BRANCH
        )
        try:
            return self._store.repositories.create(
                request.name,
                request.remote_url,
                default_branch=branch,
                description=request.description,
                settings=request.settings,
            )
        except ConflictError:  # somebody else registered it meanwhile
            if (known := self._known_as(request)) is None:
                raise
            return known

    def _known_as(self, request: m.RegisterRepository) -> Repository | None:
        """What is registered under the name; ConflictError when it is something else than is asked for."""
        try:
            row = self._store.repositories.by_name(request.name)
        except NotFoundError:
            return None
        asked = {"remote_url": request.remote_url, "settings": request.settings}
        asked |= {name: value for name in ("default_branch", "description") if (value := getattr(request, name))}
        if differs := [name for name, value in asked.items() if getattr(row, name) != value]:
            raise ConflictError(
                f"the repository {request.name!r} is registered with another {' and '.join(differs)},"
                " which cannot be changed: choose another name"
            )
        return row

    async def get_repository(self, caller: Caller, request: m.RepositoryName) -> m.RepositoryReply:
        """One repository."""
        return views.repository(await self._call(self._store.repositories.by_name, request.name))

    async def list_repositories(self, caller: Caller, request: m.Page) -> m.RepositoryList:
        """A page of them."""
        rows = await self._call(self._store.repositories.page, after=request.after, limit=request.limit + 1)
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.RepositoryList(items=[views.repository(row) for row in rows], next_after=following)

    async def open_session(
        self, caller: Caller, request: m.OpenSession, *, idempotency_key: str | None = None
    ) -> m.SessionReply:
        """Lease a workspace of a commit and a patch; the key is remembered with it."""
        self._accepting()
        async with self._quotas.room(caller, sessions=1):
            return views.session(await self._call_git(self._open, caller, request, idempotency_key))

    def _open(self, caller: Caller, request: m.OpenSession | m.StartRun, key: str | None) -> Session:
        repository = self._store.repositories.by_name(request.repository)
        wanted = EnvironmentPlan.of(
            manifests=request.manifests, python=request.python, extras=request.extras, groups=request.groups
        )
        # Killed before the run's one command is queued, nobody would ever close the session.
        process = self._engine.owner if isinstance(request, m.StartRun) else None
        expires = getattr(request, "expires_in", None)
        return self._sessions.open(
            repository,
            commit=request.commit_sha,
            owner=caller.name,
            patch=SessionPatch(request.patch) if request.patch else None,
            requested_by=getattr(request, "requested_by", None) or caller.name,
            owner_token_id=caller.token_id,
            expires_at=datetime.now(UTC) + timedelta(seconds=expires) if expires else None,
            idempotency_key=key,
            plan=SessionPlan(environment=wanted, process=process),
            metadata=request.metadata,
        )

    async def _opened_under(self, caller: Caller, key: str, since: datetime) -> Session | None:
        """The session that an attempt of this keyed request opened before its process died."""
        return await self._call(self._store.sessions.opened_under, key, owner_token_id=caller.token_id, since=since)

    async def get_session(self, caller: Caller, request: m.SessionId) -> m.SessionReply:
        """One session."""
        return views.session(await self._session(caller, request.session_id))

    async def list_sessions(self, caller: Caller, request: m.Page) -> m.SessionList:
        """The caller's, or everybody's."""
        owner = None if caller.is_admin else caller.token_id
        rows = await self._call(
            self._store.sessions.page, owner_token_id=owner, after=request.after, limit=request.limit + 1
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.SessionList(items=[views.session(row) for row in rows], next_after=following)

    async def fork_session(self, caller: Caller, request: m.ForkSession) -> m.SessionList:
        """New sessions from the current state."""
        self._accepting()
        session = await self._session_to_use(caller, request.session_id)
        async with self._quotas.room(caller, sessions=request.count):
            rows = await self._call_git(self._sessions.fork, session, request.count, owner=caller.name)
        return m.SessionList(items=[views.session(row) for row in rows])

    async def reset_session(self, caller: Caller, request: m.SessionId) -> m.SessionReply:
        """Back to commit and patch; not while a command runs in it."""
        session = await self._session_to_use(caller, request.session_id)
        running = [
            row for row in await self._call(self._store.commands.in_session, session.id) if not row.status.terminal
        ]
        if running:
            raise ConflictError(f"session {session.id} has a command under way ({running[0].id}): cancel it first")
        await self._call_git(self._sessions.reset, session)
        return views.session(session)

    async def diff_session(self, caller: Caller, request: m.SessionId) -> m.SessionDiff:
        """What was changed."""
        data = await self.diff_bytes(caller, request)
        try:
            return m.SessionDiff(session_id=request.session_id, patch=data.decode(), exact=True)
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            return m.SessionDiff(session_id=request.session_id, patch=text, exact=False)

    async def diff_bytes(self, caller: Caller, request: m.SessionId) -> bytes:
        """The same, byte for byte."""
        session = await self._session_to_use(caller, request.session_id)
        return await self._call_git(self._sessions.diff, session)

    async def close_session(self, caller: Caller, request: m.SessionId) -> m.Message:
        """Cancel what runs and give the workspace back; a closed one stays as it is."""
        session = await self._session(caller, request.session_id)
        if session.is_open:
            await self._call(self._engine.close_session, session, SessionStatus.CANCELLED)
        return m.Message(message=f"session {session.id} is closed")

    async def debug_session(self, caller: Caller, request: m.DebugAction) -> m.Message:
        """Debuggers come with their own part."""
        await self._session(caller, request.session_id)
        raise DebuggerUnavailableError(f"no debugger is attached to session {request.session_id}")


def require_open(session: Session) -> None:
    """ConflictError when nothing can run in the session any more."""
    if not session.is_open:
        raise ConflictError(f"session {session.id} is {session.status.value}: open a new one")
