"""Ends one run of a worker within its grace; shutdown, restart and replacement all do it this way.

requests finish --all over, or grace nearly over--> TERM --grace over--> KILL --> empty tree
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from debug_server.workers.attending import first
from debug_server.workers.changes import RequestCount
from debug_server.workers.interface import WorkerExit
from debug_server.workers.reporting import Reporter
from debug_server.workers.worker_run import WorkerRun

SHORT_GRACE = 0.25  # seconds from TERM to KILL for one that is not ready in time, or has used up its grace
END_SECONDS = 30.0  # beside the grace: what the kernel does not let die at once, a keeper that gets no processor


class Retirement:
    """What was done to end the present run, and what had to be told of it."""

    def __init__(self, *, grace: float, requests: RequestCount, report: Reporter) -> None:
        self._grace, self._requests, self._report = grace, requests, report
        self._asked = self._told = False

    def reset(self) -> None:
        """A new run begins."""
        self._asked = self._told = False

    async def retire(self, run: WorkerRun, reason: str, *, stopping: Callable[[], None]) -> None:
        """Let requests finish, then have the tree ended; ``stopping`` is called in between.

        The process is gone when the grace is over, so requests get a little less than all of it.
        """
        self._asked = True
        began = asyncio.get_running_loop().time()
        least = min(SHORT_GRACE, self._grace / 2)
        if not run.ended.done() and not await self._finished(run, self._grace - least):
            self._exceeded()
        stopping()
        left = self._grace - (asyncio.get_running_loop().time() - began)
        run.end(grace=max(least, left), message=reason)

    async def _finished(self, run: WorkerRun, seconds: float) -> bool:
        """Whether every request came to an end in time; with the process, every one does."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await first(self._requests.wait_for_none(), run.failing.wait())
                return True
        return False

    def report_exit(self, exit: WorkerExit) -> None:
        """Tell what TERM or KILL did not achieve; nothing of a run that nobody asked to end."""
        if not self._asked:
            return
        if exit.killed:
            self._exceeded()
        if exit.survivors:
            self._report.say("shutdown_sigkill_failed", level=logging.ERROR)

    def _exceeded(self) -> None:
        if not self._told:
            self._told = True
            self._report.say("shutdown_grace_exceeded", level=logging.WARNING, in_flight=self._requests.count)
