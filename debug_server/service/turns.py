"""A few of many in each turn of the event loop, so that those who ask for something else need not wait for all."""

from __future__ import annotations

import asyncio
from collections import deque

_AT_A_TURN = 2  # followers that are woken in one turn: each may have 64 KiB to send


class Turns:
    """Wakes those who follow logs, in the order in which there was something for them; used in one event loop."""

    def __init__(self) -> None:
        self._due: deque[asyncio.Event] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def wake(self, woken: asyncio.Event) -> None:
        """Set an event when its turn has come; call it in the loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # a new loop begins anew
            self._loop, self._due = loop, deque()
        if not self._due:
            loop.call_soon(self._turn)
        self._due.append(woken)

    async def wait(self) -> None:
        """Let the others have their turns first."""
        woken = asyncio.Event()
        self.wake(woken)
        await woken.wait()

    def _turn(self) -> None:
        for _ in range(min(_AT_A_TURN, len(self._due))):
            self._due.popleft().set()
        if self._due and self._loop is not None:
            self._loop.call_soon(self._turn)
