"""Keeps one instance of a declared worker alive: starts, monitors, replaces and drains it.

The rules are in ``state.Machine``; this module executes them in the server's event loop.
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
from debug_server.model import CommandSpec, WorkerIdentity
from debug_server.runner.recovery import Adopted
from debug_server.workers.backoff import Backoff, RestartBudget
from debug_server.workers.change_notifier import ChangeNotifier, RequestCount
from debug_server.workers.clock import Clock
from debug_server.workers.graceful_stop import END_SECONDS, SHORT_GRACE, GracefulStop
from debug_server.workers.interface import Generation, WorkerChange, WorkerExit
from debug_server.workers.monitoring import LogVolume, NotReadyError, become_ready, monitor
from debug_server.workers.readiness import Probe, ProbeContext, ProbeFailedError, open_probe
from debug_server.workers.reporting import Reporter
from debug_server.workers.state import GiveUp, Machine, Phase, ReadinessReason, Restart
from debug_server.workers.status import worker_status
from debug_server.workers.worker_run import RunOrder, WorkerRun


@dataclass(slots=True)
class _Requested:
    """Requests that are not carried out yet."""

    closing: bool = False  # the server shuts down
    halted: bool = False  # an operator has stopped it
    successor: bool = False  # its current run is being replaced


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
        self._current_run: WorkerRun | None = None
        self._generation: Generation | None = None
        self._task: asyncio.Task[None] | None = None
        self._changes = ChangeNotifier()
        self._requests = RequestCount()
        self._graceful_stop = GracefulStop(grace=timing.shutdown_grace, requests=self._requests, report=self._report)
        self._stop_task: asyncio.Task[None] | None = None
        self._stop_by = 0.0  # of the loop's clock
        self._wake_up = asyncio.Event()  # wakes a supervisor that waits for the next start

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
        """Whether a process exists, or will be started without an operator."""
        return self.machine.is_running

    @property
    def in_flight(self) -> int:
        """The number of requests that use it now."""
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
        """True as soon as it is ready; False at the deadline, or if it needs an operator."""
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
        """Call ``listener`` at each spawn, ready and exit; returns its removal."""
        return self._changes.subscribe(listener)

    # -- for its operators ----------------------------------------------------------------------------------------

    def start(self, adopted: Adopted | None = None) -> None:
        """Start it, or continue the run that another process had started."""
        self._task = asyncio.get_running_loop().create_task(self._supervise(adopted), name=f"worker {self.name}")

    def reset(self) -> None:
        """Forget its failures; start it now if it is failed, waiting or stopped."""
        self._requested.halted = False
        self.machine.reset()
        self._wake_up.set()
        self._notify()

    async def restart(self) -> None:
        """Replace its process after its requests have finished; a stopped worker starts now."""
        if self._current_run is None:
            self.reset()
        else:
            await self._stop_run(self._current_run, "an operator asked for a restart", successor=True)

    async def halt(self) -> None:
        """Drain and end it until ``restart`` or ``reset``. WorkerTimeoutError if it does not end in time."""
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
                f"worker {self.name} (pid {self.machine.pid}) has not ended within {seconds:g} s: it is still being"
                " stopped; check its status"
            ) from None

    def drain(self, reason: str = "the server is shutting down") -> None:
        """Begin the shutdown: take no new requests, end the process within its grace, start no successor."""
        self._requested.closing = True
        self._drain()
        self._wake_up.set()
        if self._stop_task is None:
            loop = asyncio.get_running_loop()
            self._stop_by = loop.time() + self._timing.shutdown_grace + END_SECONDS
            self._stop_task = loop.create_task(self._end(reason))

    def _drain(self) -> None:
        if self.machine.phase not in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED):
            self.machine.drain()
            self._report.log("shutdown_initiated", in_flight=self.in_flight)
            self._notify()

    async def shutdown(self, reason: str = "the server is shutting down") -> bool:
        """Drain, TERM, KILL, empty tree; returns whether no process is left.

        A worker that has not ended 30 s after its grace is left to its keeper, which ends it without a server, or to
        the next server.
        """
        self.drain(reason)
        try:
            async with asyncio.timeout_at(self._stop_by):
                for task in (self._stop_task, self._task):
                    if task is not None:
                        await asyncio.shield(task)  # other callers may wait for it too
        except TimeoutError:
            self._report.log("shutdown_incomplete", level=logging.ERROR)
            return False
        return True

    async def _end(self, reason: str) -> None:
        self._drain()
        self._wake_up.set()
        if self._current_run is not None:
            await self._stop_run(self._current_run, reason, successor=False)

    async def _stop_run(self, run: WorkerRun, reason: str, *, successor: bool) -> None:
        self._requested.successor |= successor
        if successor:
            self.machine.ending(ReadinessReason.SHUTDOWN_INITIATED)
            self._notify()
        await self._graceful_stop.stop(run, reason, stopping=lambda: None if successor else self._stopping())

    def _stopping(self) -> None:
        self.machine.stopping()
        self._notify()

    # -- runs -------------------------------------------------------------------------------------------------

    async def _supervise(self, adopted: Adopted | None) -> None:
        while not self._requested.closing:
            if not self._requested.halted:
                await self._run_and_pause(adopted)
                adopted = None
            if self._requested.halted and not self._requested.closing:
                self._wake_up.clear()  # it was set to end the wait
                self.machine.stopped()
                self._notify()
                await self._pause(None)
        self.machine.stopped()
        self._report.log("shutdown_complete")
        self._report.record("stopped", None)
        self._notify()

    async def _run_and_pause(self, adopted: Adopted | None) -> None:
        """One run, and the delay after it."""
        self._wake_up.clear()
        self._graceful_stop.reset()
        self.machine.launching()
        self._report.log("worker_launch", generation=self.machine.generation)
        self._notify()
        worker_exit = await self._run_to_exit(adopted)
        replacement_requested, self._requested.successor = self._requested.successor, False
        following = self.machine.exited(worker_exit, replacement_requested=replacement_requested)
        self._report_exit(worker_exit)
        self._notify(kind="exit", exit=worker_exit)
        if isinstance(following, GiveUp):
            self._report.log("worker_restart_limit", level=logging.ERROR, restart_max=self._timing.restart_max)
            self._report.record("failed", None, reason="restart_limit_exceeded")
            await self._pause(None)
        elif isinstance(following, Restart):
            backoff_ms = round(following.delay * 1000, 3)
            self._report.log("worker_restart_scheduled", level=logging.WARNING, backoff_ms=backoff_ms)
            await self._pause(following.delay)

    async def _pause(self, seconds: float | None) -> None:
        if seconds == 0.0 or self._requested.closing:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake_up.wait()

    async def _run_to_exit(self, adopted: Adopted | None) -> WorkerExit:
        try:
            probe = open_probe(replace(self._context, adopted=adopted is not None))
        except (ProbeFailedError, OSError) as error:
            return _never_started(str(error))
        self._logged = LogVolume(most=self._spec.recycling.log_bytes)
        first_byte = None if adopted else 0
        run = WorkerRun(self._context.runner, on_output=self._on_output, on_ending=self._on_ending, offset=first_byte)
        self._current_run = run
        listening: asyncio.Task[None] | None = None
        try:
            if adopted is not None:
                probe.mark_ready()
                run.adopt(adopted)
            else:
                run.begin(self._order(probe))
            if await self._spawned(run):
                listening = asyncio.ensure_future(probe.listen(run.channel))
                await self._monitor_run(run, probe)
            return await self._await_exit(run, probe)
        finally:
            self._current_run = self._generation = None
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
        identity = WorkerIdentity(name=spec.name, instance=self.instance, fingerprint=spec.fingerprint())
        return RunOrder(session_id=self.session_id, spec=command, cwd=spec.cwd, identity=identity)

    async def _spawned(self, run: WorkerRun) -> bool:
        await asyncio.wait([run.spawned])  # cancelled if it ends before
        if run.spawned.cancelled():
            return False
        self.machine.spawned(run.spawned.result())
        self._report.log("worker_spawned", command_id=run.command_id)
        self._report.record("spawned", run.command_id, pid=run.spawned.result())
        self._notify(kind="spawn")
        return True

    async def _monitor_run(self, run: WorkerRun, probe: Probe) -> None:
        """Monitor it until the first sign of its end."""
        if not await self._became_ready(run, probe):
            return
        self._generation = Generation(
            number=self.machine.generation,
            pid=self.machine.pid or 0,
            channel=run.channel,
            conversation=probe.conversation,
            ended=run.ended,
            ending=run.ending,
        )
        (self._context.folder / "ready").write_text(str(run.command_id))
        self._report.log("worker_ready", latency_ms=self.machine.startup_ms)
        self._report.record("ready", run.command_id, latency_ms=self.machine.startup_ms)
        self._notify(kind="ready")
        why = await monitor(run, probe, self._timing, self._spec.recycling, self._logged)
        if why is not None:
            self._report.log(
                "worker_recycle", level=logging.WARNING if why.failure else logging.INFO, reason=why.sentence
            )
            if why.failure:
                self.machine.ending(ReadinessReason.WORKER_EXIT, why.sentence)
                self._notify()
                run.end(grace=SHORT_GRACE, message=why.sentence)
            else:
                await self._stop_run(run, why.sentence, successor=True)

    async def _became_ready(self, run: WorkerRun, probe: Probe) -> bool:
        try:
            details = await become_ready(run, probe, self._timing.startup_timeout)
        except NotReadyError as error:
            self._report.log("worker_ready_timeout" if error.late else "worker_not_ready", level=logging.WARNING)
            self.machine.ending(ReadinessReason.HANDSHAKE_FAILED, str(error))
            self._notify()
            run.end(grace=SHORT_GRACE, message=str(error))
            return False
        if details is not None:
            self.machine.ready(details)
        return self.machine.is_ready

    async def _await_exit(self, run: WorkerRun, probe: Probe) -> WorkerExit:
        """Wait from the first sign of its end until the tree is empty."""
        if probe.conversation is not None:
            try:
                await probe.conversation.close()
            except (DebugServerError, OSError) as error:
                self._report.log("worker_conversation_error", level=logging.WARNING, error=str(error))
        worker_exit = await run.ended
        if self.machine.error is None or worker_exit.error:
            return worker_exit
        return _explained(worker_exit, self.machine.error)

    def _on_ending(self) -> None:
        """Called at once, not in the monitoring task: many requests may be before that task in the loop."""
        self.machine.ending(ReadinessReason.WORKER_EXIT)
        self._generation = None
        self._notify()

    # -- reports ---------------------------------------------------------------------------------------------

    def _on_output(self, stream: str, length: int) -> None:
        if stream == "stderr":
            self._logged.add(length)
        self._report.on_output(stream, length)

    def _report_exit(self, exit: WorkerExit) -> None:
        fields: dict[str, Any] = {"code": exit.code, "signal": exit.signal, "reason": exit.reason, "error": exit.error}
        self._graceful_stop.report_exit(exit)
        quiet = self.machine.phase in (Phase.DRAINING, Phase.STOPPING)
        if exit.reason == "spawn_failed":
            self._report.log("worker_spawn_error", level=logging.ERROR, **fields)
        elif quiet:
            self._report.log("worker_exit_during_shutdown", **fields)
        else:
            self._report.log("worker_exit", level=logging.WARNING, **fields)
            self._report.warn_of_crashes()
        self._report.record("exited", None, **fields)

    def _notify(self, *, kind: Literal["spawn", "ready", "exit"] | None = None, exit: WorkerExit | None = None) -> None:
        """Update the metrics, wake waiters and, for a spawn, ready or exit, call subscribers."""
        self._report.update_metrics()
        number = self.machine.generation
        self._changes.notify(
            kind and WorkerChange(kind=kind, worker=self.name, instance=self.instance, generation=number, exit=exit)
        )


def _never_started(error: str) -> WorkerExit:
    return WorkerExit(at=datetime.now(UTC), code=None, signal=None, error=error, reason="spawn_failed")


def _explained(exit: WorkerExit, error: str) -> WorkerExit:
    return WorkerExit(at=exit.at, code=exit.code, signal=exit.signal, error=error, reason=exit.reason)
