"""Notifies waiters and subscribers of changes of a worker, and counts its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from debug_server.workers.interface import WorkerChange


class ChangeNotifier:
    """Waiters and subscribers of one worker, in one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[WorkerChange], None]] = []

    def subscribe(self, listener: Callable[[WorkerChange], None]) -> Callable[[], None]:
        """Call ``listener`` with each change; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def notify(self, change: WorkerChange | None) -> None:
        """Wake the waiters and, for a spawn, ready or exit, call the subscribers."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        if change is not None:
            for listener in list(self._listeners):
                listener(change)


class RequestCount:
    """How many requests a worker is serving."""

    def __init__(self) -> None:
        self.count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self.count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if self.count == 0:
            self._none.set()

    async def wait_for_none(self) -> None:
        """Wait until there are none."""
        await self._none.wait()
