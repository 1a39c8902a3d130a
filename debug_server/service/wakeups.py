"""Wakes coroutines when a command or session that they wait for has changed.

A commit of this process wakes its waiters at once, without reading the store. Commits of other processes are found by
one reader of the event log for all waiters. Waiting needs no thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Literal

from debug_server.errors import DebugServerError
from debug_server.model import Command, EventHead, Notice
from debug_server.store import MetadataStore

POLL_SECONDS = 0.25  # how often events of other processes are polled
_PAGE = 1000
_REMEMBERED = 256  # commands that have ended

Subject = tuple[Literal["command", "session", "anything"], int]
ANYTHING: Subject = ("anything", 0)
ReadEvents = Callable[[int, int], Awaitable[list[EventHead]]]
LastEvent = Callable[[], Awaitable[int]]


class Wakeups:
    """The waiting coroutines of one event loop; a new loop starts with none."""

    def __init__(self, store: MetadataStore, *, read: ReadEvents, last: LastEvent) -> None:
        self._read = read
        self._last = last
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[Subject, set[asyncio.Event]] = {}
        self._ended: OrderedDict[int, Command] = OrderedDict()  # the last commands that ended in this process
        self._at_end: dict[int, Callable[[], None]] = {}  # an entry is used by one thread alone
        self._remove = store.events.add_listener(self._committed)

    @asynccontextmanager
    async def changes_of(self, subject: Subject) -> AsyncIterator[asyncio.Event]:
        """An ``asyncio.Event`` that is set after each change of the subject; clear it before each read."""
        await self._ensure_reader()
        woken = asyncio.Event()
        self._waiting.setdefault(subject, set()).add(woken)
        try:
            yield woken
        finally:
            self._leave(subject, woken)

    def at_end(self, command_id: int, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the end of a command is committed; called in the thread that will commit it."""
        self._at_end[command_id] = wake

    def forget(self, command_id: int) -> None:
        """The end of a command will not be committed in this thread."""
        self._at_end.pop(command_id, None)

    def ended(self, command_id: int) -> Command | None:
        """The command, if it is one of the last that ended in this process: its row need not be read."""
        return self._ended.get(command_id)

    def wake_all(self) -> None:
        """Wake every waiter; call it in the event loop."""
        self._wake(list(self._waiting))

    def close(self) -> None:
        """Stop listening."""
        self._remove()

    async def _ensure_reader(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._reader, self._waiting = loop, None, {}
        if self._reader is None or self._reader.done():
            after = await self._last()  # before the caller reads, so that no event is missed
            if self._reader is None or self._reader.done():
                self._reader = loop.create_task(self._poll_events(after))

    def _leave(self, subject: Subject, woken: asyncio.Event) -> None:
        waiting = self._waiting.get(subject, set())
        waiting.discard(woken)
        if not waiting:
            self._waiting.pop(subject, None)

    def _committed(self, notice: Notice) -> None:
        """Wake the waiters; runs in the thread that committed. A waiter that starts later reads the new rows itself."""
        if notice.ended is not None:  # before the search for waiters: one that comes later finds it
            self._ended[notice.ended.id] = notice.ended
            if len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
            if (wake := self._at_end.pop(notice.ended.id, None)) is not None:
                wake()
        loop = self._loop
        concerned = [subject for subject in _subjects(notice) if self._has_asleep(subject)]
        if loop is not None and concerned:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._wake, concerned)

    def _has_asleep(self, subject: Subject) -> bool:
        """Whether a waiter must be woken: one that is awake already will read this commit, too.

        The copy is made at once, because the event loop changes the set meanwhile.
        """
        return any(not woken.is_set() for woken in tuple(self._waiting.get(subject, ())))

    def _wake(self, subjects: Iterable[Subject]) -> None:
        for subject in subjects:
            for woken in self._waiting.get(subject, ()):
                woken.set()

    async def _poll_events(self, after: int) -> None:
        """Read events of other processes until there are no waiters."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if not self._waiting:
                return
            while events := await self._events(after):
                after = events[-1].seq
                for event in events:
                    self._wake(_subjects(Notice(event.kind, event.session_id, event.command_id)))

    async def _events(self, after: int) -> list[EventHead]:
        try:
            return await self._read(after, _PAGE)
        except DebugServerError:  # the store is unavailable: waiters read it themselves and get the error
            self.wake_all()
            return []


def _subjects(notice: Notice) -> list[Subject]:
    found: list[Subject] = [ANYTHING]
    if notice.command_id is not None:
        found.append(("command", notice.command_id))
    if notice.session_id is not None:
        found.append(("session", notice.session_id))
    return found


async def wait_for(woken: asyncio.Event, seconds: float) -> bool:
    """Whether the event was set within so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await woken.wait()
    return False
