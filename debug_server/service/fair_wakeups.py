"""A few of many in each turn of the event loop, so that those who ask for something else need not wait for all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_AT_A_TURN = 2  # followers that are woken in one turn: each may have 64 KiB to send


class FairWakeups:
    """Wakes those who follow logs, in the order in which there was something for them; used in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: deque[asyncio.Event] = deque()
        self._queued: set[asyncio.Event] = set()  # the same: each waits once, however often it is woken
        self._scheduled = False

    def waker(self, woken: asyncio.Event) -> Callable[[], None]:
        """A function for any thread that has an event of this loop set when its turn has come."""
        loop = self._bind()

        def wake() -> None:
            if woken in self._queued:
                return
            self._queued.add(woken)
            self._due.append(woken)
            if not self._scheduled:  # a crowd that is woken together enters the loop once, not a thousand times
                self._scheduled = True
                loop.call_soon_threadsafe(self._turn)

        return wake

    async def wait(self) -> None:
        """Let the others have their turns first."""
        woken = asyncio.Event()
        self.waker(woken)()
        await woken.wait()

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new loop begins anew
            self._loop, self._due, self._queued, self._scheduled = loop, deque(), set(), False
        return loop

    def _turn(self) -> None:
        for _ in range(min(_AT_A_TURN, len(self._due))):
            woken = self._due.popleft()
            self._queued.discard(woken)  # before it is set: a change from here on wakes it again
            woken.set()
        self._scheduled = False  # before the look: who comes after the look schedules the next turn itself
        if self._due and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._turn)
