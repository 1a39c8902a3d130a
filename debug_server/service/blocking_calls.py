"""Runs blocking calls in threads: all calls from coroutines into the store and the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from debug_server.errors import ResourcesExhaustedError
from debug_server.service.threads import Threads, or_exhausted

_THREADS = 32
_GIT_THREADS = 32  # separate: a fetch may take minutes, and a lease waits until another session closes
_PEER_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class BlockingCalls:
    """Runs blocking functions in threads for callers in the event loop."""

    def __init__(self, *, reads_in_event_loop: bool, on_exhausted: Callable[[], object]) -> None:
        """``reads_in_event_loop``: do not read rows in a thread, because that is slower (100 us against 20 us).

        ``on_exhausted`` is called when a call fails because no thread or process can be created.
        """
        self._reads_in_event_loop = reads_in_event_loop
        self._on_exhausted = on_exhausted
        self._threads = Threads(_THREADS, "service")
        self._git_threads = Threads(_GIT_THREADS, "service-git")
        self._peer_threads = Threads(_PEER_THREADS, "service-peers")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that may block briefly."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def call_git(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that works on repositories or waits for workspaces."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._git_threads, call)

    async def call_peers(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a check of a caller's connection, even while all other threads wait for the store."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._peer_threads, call)

    async def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows, in the event loop if that is faster."""
        if self._reads_in_event_loop:
            return function(*args, **kwargs)
        return await self.call(function, *args, **kwargs)

    def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return or_exhausted(function, *args, **kwargs)
        except ResourcesExhaustedError:
            self._git_threads.end_idle()
            self._on_exhausted()
            raise

    def close(self) -> None:
        """Shut the threads down; running calls finish in the background."""
        for threads in (self._threads, self._git_threads, self._peer_threads):
            threads.shutdown(wait=False, cancel_futures=True)
