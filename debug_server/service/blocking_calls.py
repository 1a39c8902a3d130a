"""The one bridge from async to threads: calls into the store and the engine go through here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from debug_server.errors import ResourcesExhaustedError
from debug_server.service.threads import Threads, or_exhausted

_THREADS = 32
_GIT_THREADS = 32  # of their own: a fetch may take minutes, and who waits for a workspace waits for somebody's close
_PEER_THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class BlockingCalls:
    """Runs blocking functions in threads for callers in the event loop."""

    def __init__(self, *, reads_at_once: bool, exhausted: Callable[[], object]) -> None:
        """``reads_at_once``: the store reads a row quicker than a thread wakes (20 us against 100).

        ``exhausted`` is called when a call could not have a thread or process that it needs.
        """
        self._reads_at_once = reads_at_once
        self._exhausted = exhausted
        self._threads = Threads(_THREADS, "service")
        self._git_threads = Threads(_GIT_THREADS, "service-git")
        self._peer_threads = Threads(_PEER_THREADS, "service-peers")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that may block for a moment."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def call_git(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run something that works on repositories or waits for workspaces."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._git_threads, call)

    async def call_peers(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Look at callers, also while all other threads wait for the store."""
        call = partial(self._run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._peer_threads, call)

    async def read(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows, in the loop where that is quicker."""
        if self._reads_at_once:
            return function(*args, **kwargs)
        return await self.call(function, *args, **kwargs)

    def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return or_exhausted(function, *args, **kwargs)
        except ResourcesExhaustedError:
            self._exhausted()
            raise

    def close(self) -> None:
        """Let the threads go; calls that are under way end by themselves."""
        for threads in (self._threads, self._git_threads, self._peer_threads):
            threads.shutdown(wait=False, cancel_futures=True)
