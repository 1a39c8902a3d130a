"""The verbs of tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from debug_server import messages as m
from debug_server.service import views
from debug_server.service.caller import Caller, check_scopes
from debug_server.service.quotas import check_quotas
from debug_server.service.verbs import Verbs


class TokenVerbs(Verbs):
    """Tokens, and the caller's own identity."""

    async def create(self, caller: Caller, request: m.CreateToken) -> m.TokenReply:
        """A new token; its secret is shown once."""
        expires = datetime.now(UTC) + timedelta(seconds=request.expires_in) if request.expires_in else None
        scopes, quotas = check_scopes(request.scopes), check_quotas(request.quotas)
        row, secret = await self._call(
            self._store.tokens.create, request.name, scopes, expires_at=expires, quotas=quotas
        )
        return views.token(row, secret)

    async def page(self, caller: Caller, request: m.ListRequest) -> m.TokenList:
        """The tokens, without secrets."""
        rows = await self._call(
            self._store.tokens.page, after=request.after, limit=request.limit + 1, newest=request.newest
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.TokenList(items=[views.token(row) for row in rows], next_after=following)

    async def revoke(self, caller: Caller, request: m.TokenRef) -> m.Message:
        """Revoke a token and disconnect its followers."""
        await self._call(self._store.tokens.revoke, request.token_id)
        self._shared.followers.disconnect(request.token_id)
        return m.Message(message=f"token {request.token_id} is revoked")

    async def who_am_i(self, caller: Caller, request: m.EmptyRequest) -> m.WhoAmI:
        """The caller as the server sees it."""
        return m.WhoAmI(token_id=caller.token_id, name=caller.name, scopes=sorted(caller.scopes))
