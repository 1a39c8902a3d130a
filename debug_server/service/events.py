"""The verbs of events: read by cursor, followed without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.messages import ADMIN
from debug_server.model import Event
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.verbs import Verbs
from debug_server.service.wakeups import ANYTHING, Subject


class EventVerbs(Verbs):
    """Durable events."""

    async def read(self, caller: Caller, request: m.ReadEvents) -> m.EventList:
        """Events after a cursor that the caller may see."""
        page, _ = await self._page(caller, request)
        return page

    async def _page(self, caller: Caller, request: m.ReadEvents) -> tuple[m.EventList, bool]:
        """A page, and whether there may be another one now."""
        rows, next_after = await self._call(self._events, request)
        items = [views.event(row) for row in rows if await self._sees(caller, row)]
        return m.EventList(items=items, next_after=next_after), len(rows) == request.limit

    def _events(self, request: m.ReadEvents) -> tuple[list[Event], int]:
        """A page, and where the next one begins."""
        last = self._store.events.last()  # first: the search looks at least so far
        rows = self._store.events.read(
            request.after,
            request.limit,
            kind=request.kind,
            session_id=request.session_id,
            command_id=request.command_id,
        )
        # Events that the filters leave out must not be read again and again.
        seen = rows[-1].seq if rows else request.after
        return rows, seen if len(rows) == request.limit else max(seen, last)

    async def follow(self, caller: Caller, request: m.ReadEvents) -> AsyncGenerator[m.EventReply, None]:
        """Yield events after the cursor, then new ones, until the caller disconnects or the server drains."""
        async with self._wakeups.changes_of(_subject(request)) as woken:
            while not self._shared.draining:
                woken.clear()
                page, is_full = await self._page(caller, request)
                for item in page.items:
                    yield item
                request = request.model_copy(update={"after": page.next_after})
                if not is_full:
                    await woken.wait()

    async def _sees(self, caller: Caller, event: Event) -> bool:
        if caller.is_admin:
            return True
        if event.session_id is None:
            return False
        try:
            return await self._access.may_see(caller, event.session_id)
        except NotFoundError:  # the session was removed from the history
            return False

    async def of_subject(self, caller: Caller, subject: str, after: int, limit: int) -> list[Event]:
        """The events of a subject in order, as they are stored."""
        caller.require((ADMIN,))
        return await self._read(self._store.events.read, after, limit, subject=subject)

    def changes(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An ``asyncio.Event`` that is set after every commit; clear it before each read."""
        return self._wakeups.changes_of(ANYTHING)

    async def last(self, caller: Caller) -> int:
        """The number of the newest event."""
        caller.require((ADMIN,))
        return await self._read(self._store.events.last)


def _subject(request: m.ReadEvents) -> Subject:
    if request.command_id is not None:
        return ("command", request.command_id)
    return ANYTHING if request.session_id is None else ("session", request.session_id)
