"""Waits until a worker is ready, then monitors it: watchdog, age, memory and log size."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from debug_server.errors import DebugServerError
from debug_server.workers.readiness import Probe, ProbeFailedError
from debug_server.workers.spec import Recycling, WorkerTiming
from debug_server.workers.worker_run import WorkerRun

_MEMORY_SECONDS = 5.0  # between two checks; memory grows slowly


T = TypeVar("T")


class LogVolume:
    """How much a run has written to its log."""

    def __init__(self, *, most: int) -> None:
        self.most = most
        self._bytes = 0
        self.full = asyncio.Event()

    def add(self, length: int) -> None:
        """Count ``length`` bytes."""
        self._bytes += length
        if self._bytes > self.most:
            self.full.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Why a worker is replaced."""

    sentence: str
    failure: bool  # its restart counts as a failure: it does not answer, or logs too much too soon


class NotReadyError(Exception):
    """The worker will not become ready in this run; the message says why."""

    def __init__(self, message: str, *, late: bool) -> None:
        super().__init__(message)
        self.late = late


async def become_ready(run: WorkerRun, probe: Probe, seconds: float) -> Mapping[str, Any] | None:
    """The details of its probe when it is ready; None at the first sign of its end; else NotReadyError."""
    asking = asyncio.ensure_future(probe.ready(run.channel))
    end_signal = asyncio.ensure_future(run.ending.wait())
    try:
        await asyncio.wait([asking, end_signal], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        ended, answered = run.ending.is_set(), asking.done()
    finally:
        asking.cancel()
        end_signal.cancel()
        await asyncio.wait([asking, end_signal])
    if ended:
        with contextlib.suppress(asyncio.CancelledError):
            asking.exception()  # retrieve it, so that asyncio does not warn: the end is the reason
        return None
    if not answered:
        why = "" if probe.failure is None else f": {probe.failure}"
        raise NotReadyError(f"it was not ready within {seconds * 1000:g} ms{why}", late=True)
    if (error := asking.exception()) is not None:
        raise NotReadyError(str(error) or type(error).__name__, late=False) from error
    return asking.result()


async def monitor(
    run: WorkerRun, probe: Probe, timing: WorkerTiming, recycling: Recycling, logged: LogVolume
) -> Replacement | None:
    """Wait for the first sign of its end (None), or for a reason to replace it."""
    checks = [_watch_log(logged, timing.stable_uptime)]
    if recycling.age is not None:
        checks.append(_watch_age(recycling.age))
    if recycling.memory_bytes is not None:
        checks.append(_watch_memory(run, recycling.memory_bytes))
    if timing.watchdog_interval is not None:
        checks.append(
            _watch_answers(probe, timing.watchdog_interval, timing.watchdog_timeout, timing.watchdog_failures)
        )
    replacement = await first(_until(run.ending), *checks)
    return None if run.ending.is_set() else replacement


async def first(*work: Coroutine[Any, Any, T]) -> T:
    """The result of the first one to end; the others are cancelled and have ended on return."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _watch_age(age: float) -> Replacement:
    await asyncio.sleep(age)
    return Replacement(sentence=f"it is older than {age:g} s", failure=False)


async def _watch_memory(run: WorkerRun, most: int) -> Replacement:
    while True:
        await asyncio.sleep(_MEMORY_SECONDS)
        with contextlib.suppress(DebugServerError):  # it is just ending, or its keeper is being reconnected
            used = (await run.channel.ask({"op": "usage"}))["memory_bytes"]
            if used > most:
                return Replacement(sentence=f"it uses {used} bytes of memory, more than {most}", failure=False)


async def _watch_log(logged: LogVolume, stable: float) -> Replacement:
    began = asyncio.get_running_loop().time()
    await logged.full.wait()
    soon = asyncio.get_running_loop().time() - began < stable
    return Replacement(sentence=f"it wrote more than {logged.most} bytes to stderr", failure=soon)


async def _watch_answers(probe: Probe, interval: float, patience: float, most: int) -> Replacement:
    failures = 0
    while True:
        await asyncio.sleep(interval)
        try:
            async with asyncio.timeout(patience):
                await probe.check()
        except TimeoutError:
            failures, why = failures + 1, f"no answer within {patience:g} s"
        except (ProbeFailedError, DebugServerError, OSError) as error:
            failures, why = failures + 1, str(error)
        else:
            failures = 0
            continue
        if failures >= most:
            return Replacement(sentence=f"{failures} checks in a row failed: {why}", failure=True)
