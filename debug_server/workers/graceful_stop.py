"""Ends one run of a worker gracefully; used for shutdown, restart and replacement.

requests finish --all done, or grace nearly over--> TERM --grace over--> KILL --> empty tree
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from debug_server.workers.change_notifier import RequestCount
from debug_server.workers.interface import WorkerExit
from debug_server.workers.monitoring import first
from debug_server.workers.reporting import Reporter
from debug_server.workers.worker_run import WorkerRun

SHORT_GRACE = 0.25  # seconds from TERM to KILL for one that is not ready in time, or has used up its grace
END_SECONDS = 30.0  # in addition to the grace: processes that die slowly, a keeper without CPU time


class GracefulStop:
    """Ends the current run, and logs when its grace is exceeded."""

    def __init__(self, *, grace: float, requests: RequestCount, report: Reporter) -> None:
        self._grace, self._requests, self._report = grace, requests, report
        self._started = self._reported = False

    def reset(self) -> None:
        """Prepare for a new run."""
        self._started = self._reported = False

    async def stop(self, run: WorkerRun, reason: str, *, stopping: Callable[[], None]) -> None:
        """Let requests finish, then end the tree; ``stopping`` is called in between.

        The process must be gone when the grace is over, so requests get a little less time.
        """
        self._started = True
        began = asyncio.get_running_loop().time()
        least = min(SHORT_GRACE, self._grace / 2)
        if not run.ended.done() and not await self._finished(run, self._grace - least):
            self._exceeded()
        stopping()
        left = self._grace - (asyncio.get_running_loop().time() - began)
        run.end(grace=max(least, left), message=reason)

    async def _finished(self, run: WorkerRun, seconds: float) -> bool:
        """Whether every request ended in time, or with the process."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await first(self._requests.wait_for_none(), run.ending.wait())
                return True
        return False

    def report_exit(self, exit: WorkerExit) -> None:
        """Log that TERM or KILL did not end the processes of a run that was stopped on purpose."""
        if not self._started:
            return
        if exit.killed:
            self._exceeded()
        if exit.survivors:
            self._report.log("shutdown_sigkill_failed", level=logging.ERROR)

    def _exceeded(self) -> None:
        if not self._reported:
            self._reported = True
            self._report.log("shutdown_grace_exceeded", level=logging.WARNING, in_flight=self._requests.count)
