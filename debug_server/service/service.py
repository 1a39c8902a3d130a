"""The service: every verb of the table, for callers that were authenticated."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from debug_server.errors import AccessError, DebugServerError
from debug_server.service import messages as m
from debug_server.service import views
from debug_server.service.caller import Caller, check_scopes
from debug_server.service.logs import LogVerbs

_MIN_FREE_BYTES = 64 << 20


class Service(LogVerbs):
    """All verbs; the operators' ones are here."""

    async def authenticate(self, secret: str | None) -> Caller:
        """Whoever holds this token; AccessError for an unknown, expired or revoked one."""
        if not secret:
            raise AccessError("no token was given: send `Authorization: Bearer TOKEN`")
        token = await self._call(self._store.authenticate, secret)
        if token is None:
            raise AccessError("the token is not known, has expired or was revoked")
        return Caller.of(token)

    async def create_token(self, caller: Caller, request: m.CreateToken) -> m.TokenReply:
        """A new token; its secret is shown once."""
        expires = datetime.now(UTC) + timedelta(seconds=request.expires_in) if request.expires_in else None
        scopes = check_scopes(request.scopes)
        row, secret = await self._call(
            self._store.create_token, request.name, scopes, expires_at=expires, quotas=request.quotas
        )
        return views.token(row, secret)

    async def list_tokens(self, caller: Caller, request: m.Nothing) -> m.TokenList:
        """Every token, without secrets."""
        rows = await self._call(self._store.list_tokens)
        return m.TokenList(items=[views.token(row) for row in rows])

    async def revoke_token(self, caller: Caller, request: m.TokenId) -> m.Message:
        """End a token's life."""
        await self._call(self._store.revoke_token, request.token_id)
        return m.Message(message=f"token {request.token_id} is revoked")

    async def who_am_i(self, caller: Caller, request: m.Nothing) -> m.WhoAmI:
        """The caller as the server sees it."""
        return m.WhoAmI(token_id=caller.token_id, name=caller.name, scopes=sorted(caller.scopes))

    async def list_leases(self, caller: Caller, request: m.Nothing) -> m.LeaseList:
        """Every workspace and who holds it."""
        repositories = await self._call(self._store.list_repositories)
        rows = [row for item in repositories for row in await self._call(self._store.list_worktrees, item.id)]
        return m.LeaseList(items=[views.lease(row) for row in rows])

    async def list_workers(self, caller: Caller, request: m.Nothing) -> m.WorkerList:
        """None are declared yet."""
        return m.WorkerList(items=[])

    async def health(self, caller: Caller | None, request: m.Nothing) -> m.Health:
        """Store, disk and keepers, checked now."""
        checks = {name: await self._call(check) for name, check in self._checks().items()}
        ok = all(result == "ok" for result in checks.values())
        return m.Health(ok=ok, message="ready" if ok else "not ready", checks=checks)

    def _checks(self) -> dict[str, Callable[[], str]]:
        return {"store": self._check_store, "disk": self._check_disk, "keepers": self._check_keepers}

    def _check_store(self) -> str:
        try:
            self._store.last_event()
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
