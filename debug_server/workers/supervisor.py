"""Keeps one instance of a declared worker alive: starts it, attends to it, replaces it, drains it.

The rules are ``state.Machine``; here is what carries them out, in the server's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from debug_server.errors import DebugServerError, WorkerNotReadyError, WorkerTimeoutError
from debug_server.model import WorkerIdentity
from debug_server.runner.recovery import Adopted
from debug_server.runner.spec import CommandSpec
from debug_server.workers.attending import Logged, NotReadyError, attend, become_ready
from debug_server.workers.backoff import Backoff, RestartBudget
from debug_server.workers.changes import Changes, RequestCount
from debug_server.workers.clock import Clock
from debug_server.workers.interface import Generation, WorkerChange, WorkerExit
from debug_server.workers.readiness import Probe, ProbeContext, ProbeFailedError, open_probe
from debug_server.workers.reporting import Reporter
from debug_server.workers.retirement import END_SECONDS, SHORT_GRACE, Retirement
from debug_server.workers.state import GiveUp, Machine, Phase, ReadinessReason, Restart
from debug_server.workers.status import worker_status
from debug_server.workers.worker_run import RunOrder, WorkerRun


@dataclass(slots=True)
class _Requested:
    """What was asked of it and not yet done."""

    closing: bool = False  # the server leaves
    halted: bool = False  # an operator wants it to rest
    successor: bool = False  # its present run is to make room for the next


class ServiceSupervisor:
    """One instance of a worker; ``SupervisedWorker`` for its users."""

    def __init__(
        self,
        context: ProbeContext,
        *,
        session_id: int,
        clock: Clock,
        make_reporter: Callable[[Machine], Reporter],
    ) -> None:
        timing = context.spec.timing
        self._context, self._spec, self._timing = context, context.spec, timing
        self.session_id = session_id
        self.machine = Machine(
            backoff=Backoff(initial=timing.backoff_initial, maximum=timing.backoff_maximum),
            budget=RestartBudget(limit=timing.restart_max, window=timing.restart_window),
            stable_seconds=timing.stable_uptime,
            clock=clock,
        )
        self._report = make_reporter(self.machine)
        self._requested = _Requested()
        self._present: WorkerRun | None = None
        self._generation: Generation | None = None
        self._task: asyncio.Task[None] | None = None
        self._changes = Changes()
        self._requests = RequestCount()
        self._retirement = Retirement(grace=timing.shutdown_grace, requests=self._requests, report=self._report)
        self._leaving: asyncio.Task[None] | None = None
        self._leave_by = 0.0  # of the loop's clock
        self._go = asyncio.Event()  # wakes one that waits for its next start

    # -- for its users --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """As declared."""
        return self._spec.name

    @property
    def instance(self) -> int:
        """0, 1, 2 among those of one name."""
        return self._context.instance

    @property
    def is_ready(self) -> bool:
        """Whether requests may go to it now."""
        return self.machine.is_ready

    @property
    def is_running(self) -> bool:
        """Whether a process is there, or will be without anybody's help."""
        return self.machine.is_running

    @property
    def in_flight(self) -> int:
        """How many borrow it now."""
        return self._requests.count

    def status(self) -> dict[str, Any]:
        """The status object."""
        return worker_status(
            self.machine,
            name=self.name,
            instance=self.instance,
            in_flight=self._requests.count,
            sample=self._report.sample,
        )

    async def wait_for_ready(self, timeout: float) -> bool:  # noqa: ASYNC109 - False is an answer, not an error
        """True as soon as it is ready; False at the deadline, or when it will never be without an operator."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not self.is_ready:
                    if self.machine.phase in (Phase.FAILED, Phase.STOPPED):
                        return False
                    await self._changes.wait()
        return self.is_ready

    @contextmanager
    def borrow(self) -> Iterator[Generation]:
        """The ready generation for one request; WorkerNotReadyError when there is none."""
        generation = self._generation
        if generation is None or not self.machine.is_ready:
            delay = self.machine.next_delay or 1.0
            raise WorkerNotReadyError(
                f"worker {self.name} is not ready ({self.machine.readiness}): try again in a moment",
                status=self.status(),
                retry_after=max(1.0, delay),
            )
        with self._requests:
            yield generation

    def subscribe(self, listener: Callable[[WorkerChange], None]) -> Callable[[], None]:
        """Have ``listener`` called at each spawn, ready and exit; returns its removal."""
        return self._changes.subscribe(listener)

    # -- for its operators ----------------------------------------------------------------------------------------

    def start(self, adopted: Adopted | None = None) -> None:
        """Begin; with a run that another process had started, go on with that."""
        self._task = asyncio.get_running_loop().create_task(self._run(adopted), name=f"worker {self.name}")

    def reset(self) -> None:
        """Forget its failures; one that gave up, waits or rests starts now."""
        self._requested.halted = False
        self.machine.reset()
        self._go.set()
        self._tell()

    async def restart(self) -> None:
        """Replace its process: let it finish what it has, end it, start the next. One that is down starts now."""
        if self._present is None:
            self.reset()
        else:
            await self._retire(self._present, "an operator asked for a restart", successor=True)

    async def halt(self) -> None:
        """Drain and end it; it rests until ``restart`` or ``reset``. WorkerTimeoutError if it does not end in time."""
        self._requested.halted = True
        seconds = self._timing.shutdown_grace + END_SECONDS
        try:
            async with asyncio.timeout(seconds):
                await self._end("an operator asked it to stop")
                while (
                    self._requested.halted and self.machine.phase is not Phase.STOPPED and not self._requested.closing
                ):
                    await self._changes.wait()
        except TimeoutError:
            raise WorkerTimeoutError(
                f"worker {self.name} (pid {self.machine.pid}) has not ended within {seconds:g} s: it stops as soon as"
                " it can; look at its status"
            ) from None

    def drain(self, reason: str = "the server is shutting down") -> None:
        """Begin the shutdown: nothing new is taken, the process ends within its grace and has no successor."""
        self._requested.closing = True
        self._drain()
        self._go.set()
        if self._leaving is None:
            loop = asyncio.get_running_loop()
            self._leave_by = loop.time() + self._timing.shutdown_grace + END_SECONDS
            self._leaving = loop.create_task(self._end(reason))

    def _drain(self) -> None:
        if self.machine.phase not in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED):
            self.machine.drain()
            self._report.say("shutdown_initiated", in_flight=self.in_flight)
            self._tell()

    async def shutdown(self, reason: str = "the server is shutting down") -> bool:
        """Drain, TERM, KILL, empty tree; whether nothing of it is left.

        What has not ended some time after its grace is left to its keeper, which ends it when no server is there, or to
        the next server.
        """
        self.drain(reason)
        try:
            async with asyncio.timeout_at(self._leave_by):
                for task in (self._leaving, self._task):
                    if task is not None:
                        await asyncio.shield(task)  # others may wait for it, too
        except TimeoutError:
            self._report.say("shutdown_incomplete", level=logging.ERROR)
            return False
        return True

    async def _end(self, reason: str) -> None:
        self._drain()
        self._go.set()
        if self._present is not None:
            await self._retire(self._present, reason, successor=False)

    async def _retire(self, run: WorkerRun, reason: str, *, successor: bool) -> None:
        self._requested.successor |= successor
        if successor:
            self.machine.failing(ReadinessReason.SHUTDOWN_INITIATED)
            self._tell()
        await self._retirement.retire(run, reason, stopping=lambda: None if successor else self._stopping())

    def _stopping(self) -> None:
        self.machine.stopping()
        self._tell()

    # -- its runs -------------------------------------------------------------------------------------------------

    async def _run(self, adopted: Adopted | None) -> None:
        while not self._requested.closing:
            if not self._requested.halted:
                await self._once(adopted)
                adopted = None
            if self._requested.halted and not self._requested.closing:
                self._go.clear()  # it was set to end a wait
                self.machine.stopped()
                self._tell()
                await self._pause(None)
        self.machine.stopped()
        self._report.say("shutdown_complete")
        self._report.record("stopped", None)
        self._tell()

    async def _once(self, adopted: Adopted | None) -> None:
        """One run, and the wait that follows it."""
        self._go.clear()
        self._retirement.reset()
        self.machine.launching()
        self._report.say("worker_launch", generation=self.machine.generation)
        self._tell()
        found = await self._live(adopted)
        wanted, self._requested.successor = self._requested.successor, False
        following = self.machine.exited(found, wanted=wanted)
        self._report_exit(found)
        self._tell(kind="exit", exit=found)
        if isinstance(following, GiveUp):
            self._report.say("worker_restart_limit", level=logging.ERROR, restart_max=self._timing.restart_max)
            self._report.record("failed", None, reason="restart_limit_exceeded")
            await self._pause(None)
        elif isinstance(following, Restart):
            backoff_ms = round(following.delay * 1000, 3)
            self._report.say("worker_restart_scheduled", level=logging.WARNING, backoff_ms=backoff_ms)
            await self._pause(following.delay)

    async def _pause(self, seconds: float | None) -> None:
        if seconds == 0.0 or self._requested.closing:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._go.wait()

    async def _live(self, adopted: Adopted | None) -> WorkerExit:
        try:
            probe = open_probe(replace(self._context, adopted=adopted is not None))
        except (ProbeFailedError, OSError) as error:
            return _never_started(str(error))
        self._logged = Logged(most=self._spec.recycling.log_bytes)
        first_byte = None if adopted else 0
        run = WorkerRun(self._context.runner, on_output=self._on_output, on_failing=self._on_failing, offset=first_byte)
        self._present = run
        listening: asyncio.Task[None] | None = None
        try:
            if adopted is not None:
                probe.was_ready()
                run.adopt(adopted)
            else:
                run.begin(self._order(probe))
            if await self._spawned(run):
                listening = asyncio.ensure_future(probe.listen(run.channel))
                await self._attend(run, probe)
            return await self._last_words(run, probe)
        finally:
            self._present = self._generation = None
            probe.close()
            if listening is not None:
                listening.cancel()

    def _order(self, probe: Probe) -> RunOrder:
        spec = self._spec
        command = CommandSpec(
            list(spec.argv),
            {**spec.environment(), **probe.env},
            log_name=spec.name,
            limits=spec.limits,
            wrapper=probe.wrapper,
            stdin=True,
            relay=True,
            orphan_seconds=self._timing.orphan_timeout,
        )
        mark = WorkerIdentity(name=spec.name, instance=self.instance, fingerprint=spec.fingerprint())
        return RunOrder(session_id=self.session_id, spec=command, cwd=spec.cwd, mark=mark)

    async def _spawned(self, run: WorkerRun) -> bool:
        await asyncio.wait([run.spawned])  # cancelled, when it comes to its end before
        if run.spawned.cancelled():
            return False
        self.machine.spawned(run.spawned.result())
        self._report.say("worker_spawned", command_id=run.command_id)
        self._report.record("spawned", run.command_id, pid=run.spawned.result())
        self._tell(kind="spawn")
        return True

    async def _attend(self, run: WorkerRun, probe: Probe) -> None:
        """Until the first sign of its end."""
        if not await self._became_ready(run, probe):
            return
        self._generation = Generation(
            number=self.machine.generation,
            pid=self.machine.pid or 0,
            channel=run.channel,
            conversation=probe.conversation,
            ended=run.ended,
            failing=run.failing,
        )
        (self._context.folder / "ready").write_text(str(run.command_id))
        self._report.say("worker_ready", latency_ms=self.machine.startup_ms)
        self._report.record("ready", run.command_id, latency_ms=self.machine.startup_ms)
        self._tell(kind="ready")
        why = await attend(run, probe, self._timing, self._spec.recycling, self._logged)
        if why is not None:
            self._report.say(
                "worker_recycle", level=logging.WARNING if why.failure else logging.INFO, reason=why.sentence
            )
            if why.failure:
                self.machine.failing(ReadinessReason.WORKER_EXIT, why.sentence)
                self._tell()
                run.end(grace=SHORT_GRACE, message=why.sentence)
            else:
                await self._retire(run, why.sentence, successor=True)

    async def _became_ready(self, run: WorkerRun, probe: Probe) -> bool:
        try:
            details = await become_ready(run, probe, self._timing.startup_timeout)
        except NotReadyError as error:
            self._report.say("worker_ready_timeout" if error.late else "worker_not_ready", level=logging.WARNING)
            self.machine.failing(ReadinessReason.HANDSHAKE_FAILED, str(error))
            self._tell()
            run.end(grace=SHORT_GRACE, message=str(error))
            return False
        if details is not None:
            self.machine.ready(details)
        return self.machine.is_ready

    async def _last_words(self, run: WorkerRun, probe: Probe) -> WorkerExit:
        """From the first sign of its end to the empty tree."""
        if probe.conversation is not None:
            try:
                await probe.conversation.close()
            except (DebugServerError, OSError) as error:
                self._report.say("worker_conversation_error", level=logging.WARNING, error=str(error))
        found = await run.ended
        return found if self.machine.error is None or found.error else _explained(found, self.machine.error)

    def _on_failing(self) -> None:
        """At once, not when the task that attends to it gets its turn: many requests may be before it in the loop."""
        self.machine.failing(ReadinessReason.WORKER_EXIT)
        self._generation = None
        self._tell()

    # -- what is told ---------------------------------------------------------------------------------------------

    def _on_output(self, stream: str, length: int) -> None:
        if stream == "stderr":
            self._logged.add(length)
        self._report.heard(stream, length)

    def _report_exit(self, exit: WorkerExit) -> None:
        fields: dict[str, Any] = {"code": exit.code, "signal": exit.signal, "reason": exit.reason, "error": exit.error}
        self._retirement.report_exit(exit)
        quiet = self.machine.phase in (Phase.DRAINING, Phase.STOPPING)
        if exit.reason == "spawn_failed":
            self._report.say("worker_spawn_error", level=logging.ERROR, **fields)
        elif quiet:
            self._report.say("worker_exit_during_shutdown", **fields)
        else:
            self._report.say("worker_exit", level=logging.WARNING, **fields)
            self._report.warn_of_crashes()
        self._report.record("exited", None, **fields)

    def _tell(self, *, kind: Literal["spawn", "ready", "exit"] | None = None, exit: WorkerExit | None = None) -> None:
        """Whoever waits for a change, the metrics and, for the three great moments, the subscribers."""
        self._report.measure()
        number = self.machine.generation
        self._changes.tell(
            kind and WorkerChange(kind=kind, worker=self.name, instance=self.instance, generation=number, exit=exit)
        )


def _never_started(error: str) -> WorkerExit:
    return WorkerExit(at=datetime.now(UTC), code=None, signal=None, error=error, reason="spawn_failed")


def _explained(exit: WorkerExit, error: str) -> WorkerExit:
    return WorkerExit(at=exit.at, code=exit.code, signal=exit.signal, error=error, reason=exit.reason)
