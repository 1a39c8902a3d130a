"""Wakes a few followers in each iteration of the event loop, so that other requests do not wait for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

_WAKEUPS_PER_ITERATION = 2  # followers to wake in one iteration: each may have 64 KiB to send


class FairWakeups:
    """Wakes followers of logs in the order in which their logs changed; used in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: deque[asyncio.Event] = deque()
        self._queued: set[asyncio.Event] = set()  # the events in _due, so that each is queued only once
        self._scheduled = False

    def waker(self, woken: asyncio.Event) -> Callable[[], None]:
        """A function that queues an event of this loop to be set; any thread may call it."""
        loop = self._bind()

        def wake() -> None:
            if woken in self._queued:
                return
            self._queued.add(woken)
            self._due.append(woken)
            if not self._scheduled:  # a thousand followers that are woken together schedule one callback
                self._scheduled = True
                loop.call_soon_threadsafe(self._wake_some)

        return wake

    async def wait(self) -> None:
        """Wait until all followers that are queued now are woken."""
        woken = asyncio.Event()
        self.waker(woken)()
        await woken.wait()

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new loop starts with an empty queue
            self._loop, self._due, self._queued, self._scheduled = loop, deque(), set(), False
        return loop

    def _wake_some(self) -> None:
        for _ in range(min(_WAKEUPS_PER_ITERATION, len(self._due))):
            woken = self._due.popleft()
            self._queued.discard(woken)  # before it is set, so that a later change wakes it again
            woken.set()
        self._scheduled = False  # before the check: a change after the check schedules the next iteration itself
        if self._due and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._wake_some)
