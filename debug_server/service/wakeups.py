"""Wakes coroutines when something happened to what they wait for: one reader of the event log for all of them.

Nobody holds a thread while it waits, and an event wakes only those whom it concerns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal

from debug_server.errors import DebugServerError
from debug_server.model import Event
from debug_server.store import MetadataStore

# Events of this process wake at once; those of another one are found within this time.
REPAIR_SECONDS = 0.25
_PAGE = 1000

Subject = tuple[Literal["command", "session", "anything"], int]
ANYTHING: Subject = ("anything", 0)
ReadEvents = Callable[[int, int], Awaitable[list[Event]]]
LastEvent = Callable[[], Awaitable[int]]


class Wakeups:
    """The waiting coroutines of one event loop; a new loop begins anew."""

    def __init__(self, store: MetadataStore, *, read: ReadEvents, last: LastEvent) -> None:
        self._read = read
        self._last = last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[Subject, set[asyncio.Event]] = {}
        self._remove = store.add_listener(self._committed)

    @asynccontextmanager
    async def of(self, subject: Subject) -> AsyncIterator[asyncio.Event]:
        """An event that is set after each change; look at the facts inside the block, and clear it before each look."""
        await self._join()
        woken = asyncio.Event()
        self._waiting.setdefault(subject, set()).add(woken)
        try:
            yield woken
        finally:
            self._leave(subject, woken)

    def wake_all(self) -> None:
        """Make everybody look again; call it in the loop."""
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()

    def close(self) -> None:
        """Listen no more."""
        self._remove()

    async def _join(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._changed, self._reader, self._waiting = loop, asyncio.Event(), None, {}
        if self._reader is None or self._reader.done():
            after = await self._last()  # before the caller looks: nothing falls in between
            if self._reader is None or self._reader.done():
                self._reader = loop.create_task(self._follow(after))

    def _leave(self, subject: Subject, woken: asyncio.Event) -> None:
        waiting = self._waiting.get(subject, set())
        waiting.discard(woken)
        if not waiting:
            self._waiting.pop(subject, None)
        if not self._waiting:
            self._changed.set()

    def _committed(self) -> None:
        """In whichever thread committed."""
        loop = self._loop
        if loop is not None and self._waiting:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._changed.set)

    async def _follow(self, after: int) -> None:
        await asyncio.sleep(0)  # let whoever started this enter its name
        while self._waiting:
            self._changed.clear()
            events = await self._events(after)
            for event in events:
                after = event.seq
                self._tell(event)
            if len(events) < _PAGE:
                await wait_for(self._changed, REPAIR_SECONDS)

    async def _events(self, after: int) -> list[Event]:
        try:
            return await self._read(after, _PAGE)
        except DebugServerError:  # the store is away for a moment: those who look themselves are told so
            self.wake_all()
            return []

    def _tell(self, event: Event) -> None:
        subjects: list[Subject] = [ANYTHING]
        if event.command_id is not None:
            subjects.append(("command", event.command_id))
        if event.session_id is not None:
            subjects.append(("session", event.session_id))
        for subject in subjects:
            for woken in self._waiting.get(subject, ()):
                woken.set()


async def wait_for(woken: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set within so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await woken.wait()
    return False
