"""The verbs of leases."""

from __future__ import annotations

from debug_server import messages as m
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.verbs import Verbs


class LeaseVerbs(Verbs):
    """Workspaces and their leases."""

    async def page(self, caller: Caller, request: m.ListRequest) -> m.LeaseList:
        """A page of the workspaces with their leases."""
        rows = await self._call(
            self._store.worktrees.page, after=request.after, limit=request.limit + 1, newest=request.newest
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.LeaseList(items=[views.lease(row) for row in rows], next_after=following)
