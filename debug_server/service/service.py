"""The service: every verb of the table, for callers that were authenticated."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from debug_server.config.runner import DEFAULT_SHELL
from debug_server.engine import LocalEngine, Sessions
from debug_server.errors import AccessError, DebugServerError
from debug_server.ports import Part
from debug_server.runner.ownership import is_alive
from debug_server.runner.settings import RunnerPaths
from debug_server.service import audit, views
from debug_server.service import messages as m
from debug_server.service.caller import STRANGER, Caller, check_scopes
from debug_server.service.idempotency import Attempt, KeyedReplies
from debug_server.service.operations import Operation
from debug_server.service.outgoing import OutgoingVerbs
from debug_server.service.quotas import check_quotas
from debug_server.service.workers import WorkerVerbs
from debug_server.store import MetadataStore
from debug_server.workers.workers import Workers

_MIN_FREE_BYTES = 64 << 20
_CHECK_SECONDS = 5.0
_KEYED = frozenset({"open_session", "submit_command", "start_run"})  # the store knows what they made by their key


class Service(OutgoingVerbs, WorkerVerbs):
    """All verbs; the operators' ones are here."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        engine: LocalEngine,
        sessions: Sessions,
        paths: RunnerPaths,
        shell: str = DEFAULT_SHELL,
        workers: Workers | None = None,
    ) -> None:
        super().__init__(store=store, engine=engine, sessions=sessions, paths=paths, shell=shell)
        self._workers = workers
        self.parts: Sequence[Part] = ()  # of the server around it, whose readiness is the service's too
        self.grpc_address: tuple[str, int] | None = None  # host and port of the server around it, once it listens
        self._keyed = KeyedReplies(
            store, call=self._call, owner=lambda: engine.owner, is_alive=partial(is_alive, paths.owners_dir)
        )

    async def authenticate(self, secret: str | None) -> Caller:
        """Whoever holds this token; AccessError for an unknown, expired or revoked one."""
        if not secret:
            raise AccessError("no token was given: send `Authorization: Bearer TOKEN`")
        token = await self._read(self._store.tokens.find, secret)
        if token is None:
            raise AccessError("the token is not known, has expired or was revoked")
        caller = Caller.of(token)
        audit.note_caller(caller)
        if self._store.tokens.use_is_due(token):
            self._token_uses.note(token.id)
        self._quotas.take_request(caller)
        return caller

    async def perform(
        self, caller: Caller, operation: Operation, request: m.Request, key: str | None = None
    ) -> m.Reply:
        """Do one operation that answers once: the caller's scopes checked and, with a key, never done twice."""
        caller.require(operation.scopes or ())
        if key is None:
            reply: m.Reply = await getattr(self, operation.name)(caller, request)
            return reply
        return await self._keyed.once(
            caller, operation, request, key, partial(self._attempt, caller, operation, request)
        )

    async def once(
        self,
        caller: Caller,
        operation: Operation,
        request: m.Request,
        key: str | None,
        run: Callable[[str | None], Awaitable[m.Reply]],
    ) -> m.Reply:
        """An operation of another part: ``run`` is given the caller's own form of the key, and never done twice."""
        caller.require(operation.scopes or ())
        if key is None:
            return await run(None)
        return await self._keyed.once(caller, operation, request, key, lambda attempt: run(attempt.key))

    async def _attempt(self, caller: Caller, operation: Operation, request: m.Request, attempt: Attempt) -> m.Reply:
        if attempt.since is not None and (found := await self._resumed(caller, request, attempt.key, attempt.since)):
            return found
        options = {"idempotency_key": attempt.key} if operation.name in _KEYED else {}
        reply: m.Reply = await getattr(self, operation.name)(caller, request, **options)
        return reply

    async def _resumed(self, caller: Caller, request: m.Request, key: str, since: datetime) -> m.Reply | None:
        """What an attempt whose process died has done already, carried on; None when it did nothing."""
        if not isinstance(request, m.OpenSession | m.StartRun):
            return None
        session = await self._opened_under(caller, key, since)
        if session is None:
            return None
        if isinstance(request, m.OpenSession):
            if session.is_open:
                await self._submit_lines(session.id, request, key)
            return views.session(session)
        submitted = [
            row for row in await self._call(self._store.commands.in_session, session.id) if row.idempotency_key == key
        ]
        # A session that was closed before it had its command never ran anything: the run begins anew.
        return await self._run_in(session, request, key) if submitted or session.is_open else None

    async def create_token(self, caller: Caller, request: m.CreateToken) -> m.TokenReply:
        """A new token; its secret is shown once."""
        expires = datetime.now(UTC) + timedelta(seconds=request.expires_in) if request.expires_in else None
        scopes, quotas = check_scopes(request.scopes), check_quotas(request.quotas)
        row, secret = await self._call(
            self._store.tokens.create, request.name, scopes, expires_at=expires, quotas=quotas
        )
        return views.token(row, secret)

    async def list_tokens(self, caller: Caller, request: m.Page) -> m.TokenList:
        """The tokens, without secrets."""
        rows = await self._call(self._store.tokens.page, after=request.after, limit=request.limit + 1)
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.TokenList(items=[views.token(row) for row in rows], next_after=following)

    async def revoke_token(self, caller: Caller, request: m.TokenId) -> m.Message:
        """End a token's life, and what is being followed with it."""
        await self._call(self._store.tokens.revoke, request.token_id)
        self.audience.dismiss(request.token_id)
        return m.Message(message=f"token {request.token_id} is revoked")

    async def who_am_i(self, caller: Caller, request: m.Nothing) -> m.WhoAmI:
        """The caller as the server sees it."""
        return m.WhoAmI(token_id=caller.token_id, name=caller.name, scopes=sorted(caller.scopes))

    async def list_leases(self, caller: Caller, request: m.Page) -> m.LeaseList:
        """The workspaces and who holds each."""
        rows = await self._call(self._store.worktrees.page, after=request.after, limit=request.limit + 1)
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.LeaseList(items=[views.lease(row) for row in rows], next_after=following)

    async def health(self, caller: Caller | None, request: m.Nothing) -> m.Health:
        """Store, disk, keepers and the server's parts, checked now; a stranger does not learn why one fails."""
        checks = await self._checked()
        checks |= {part.name: part.readiness()[0] for part in self.parts}
        ok = all(result == "ok" for result in checks.values())
        if caller == STRANGER:
            checks = {name: "ok" if result == "ok" else "failed" for name, result in checks.items()}
        return m.Health(ok=ok, message="ready" if ok else "not ready", checks=checks)

    async def _checked(self) -> dict[str, str]:
        """Every check by name, all at once; one that hangs is not ready."""
        checks = {
            "store": self._check_store,
            "disk": self._check_disk,
            "keepers": self._check_keepers,
            "engine": self._engine.check,
        }
        found = await asyncio.gather(*map(self._verdict, checks.values()))
        return dict(zip(checks, found, strict=True))

    async def _verdict(self, check: Callable[[], str]) -> str:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                return await self._call(check)
        except TimeoutError:
            return f"no answer within {_CHECK_SECONDS:g} s"
        except DebugServerError as error:
            return str(error)

    def _check_store(self) -> str:
        try:
            self._store.events.last()
        except DebugServerError as error:
            return str(error)
        return "ok"

    def _check_disk(self) -> str:
        root = self._paths.artifacts_root
        root.mkdir(parents=True, exist_ok=True)
        space = os.statvfs(root)
        free = space.f_bavail * space.f_frsize
        return "ok" if free >= _MIN_FREE_BYTES else f"only {free} bytes are free in {root}"

    def _check_keepers(self) -> str:
        try:
            return "ok" if self._engine.capabilities.mechanism else "no mechanism holds process trees"
        except DebugServerError as error:
            return str(error)
