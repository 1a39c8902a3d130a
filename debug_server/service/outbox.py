"""The verbs of outgoing messages: created from events and kept until they are delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any

from debug_server.model import EventHead, OutgoingMessage
from debug_server.service.verbs import Verbs
from debug_server.service.wakeups import ANYTHING

_BATCH_SECONDS = 0.02  # reading the store for every single event would cost more than handling it


class OutboxVerbs(Verbs):
    """Used by other parts of the server, not by surfaces."""

    async def begin(self, topic: str) -> None:
        """Start a topic at the newest event, unless it exists."""
        if await self._call(self._store.outbox.cursor, topic) is None:
            await self._call(self._store.outbox.add, topic, await self._read(self._store.events.last), [])

    async def pages(self, topic: str, limit: int) -> AsyncGenerator[list[EventHead], None]:
        """Yield pages of events after the topic's cursor, then of new events."""
        after = await self._call(self._store.outbox.cursor, topic) or 0
        async with self._wakeups.changes_of(ANYTHING) as woken:
            while True:
                woken.clear()
                page = await self._read(self._store.events.heads, after, limit)
                if page:
                    after = page[-1].seq
                    yield page
                else:
                    await woken.wait()
                    await asyncio.sleep(_BATCH_SECONDS)

    async def collect(self, topic: str, seq: int, messages: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Store the (lane, data) of messages and move the cursor past their events, in one commit."""
        await self._call(self._store.outbox.add, topic, seq, messages)

    async def heads(self, topic: str) -> list[OutgoingMessage]:
        """The first message of each lane."""
        return await self._call(self._store.outbox.heads, topic)

    async def postpone(self, message: OutgoingMessage, due_at: datetime) -> None:
        """Deliver a message later."""
        await self._call(self._store.outbox.postpone, message.id, due_at)

    async def done(self, message: OutgoingMessage) -> None:
        """Remove a message. The last message of a closed session also removes the session's secrets."""
        await self._call(self._done, message)

    def _done(self, message: OutgoingMessage) -> None:
        last = self._store.outbox.remove(message.id)
        if last and message.data.get("status") == "ended":
            self._store.sessions.drop_secrets(message.lane)
