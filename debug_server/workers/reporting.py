"""Reports on one worker: log lines, durable events and metrics, never its output."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from typing import Any

from debug_server.errors import DebugServerError
from debug_server.ports import Telemetry
from debug_server.runner.worker import WorkerSupervisor
from debug_server.workers.clock import Clock
from debug_server.workers.state import CRITICAL_FAILURES, Machine, Phase
from debug_server.workers.status import LogSample

_LOG = logging.getLogger("debug_server.worker")
_STATES = {
    Phase.LAUNCHING: "starting",
    Phase.STARTING: "starting",
    Phase.READY: "ready",
    Phase.ENDING: "running",
    Phase.DRAINING: "running",
    Phase.STOPPING: "running",
}
_STREAM_SECONDS = 1.0  # at most one log line a second for each stream


class Reporter:
    """Logs, events and metrics of one worker."""

    def __init__(
        self,
        machine: Machine,
        *,
        name: str,
        instance: int,
        runner: WorkerSupervisor,
        telemetry: Telemetry | None,
        writer: Executor,
        clock: Clock,
    ) -> None:
        self._machine, self._clock = machine, clock
        self._name, self._instance = name, instance
        self._store, self._telemetry, self._writer = runner.store, telemetry, writer
        self._counted = 0
        self._streams: dict[str, tuple[float, int]] = {}  # time of the last log line, and bytes since then
        self.sample: LogSample | None = None

    def log(self, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        """Write one structured log line."""
        machine = self._machine
        common = {
            "component": "worker",
            "worker": self._name,
            "instance": self._instance,
            "worker_state": _STATES.get(machine.phase, "stopped"),
            "restart_count": machine.restarts,
            "pid": machine.pid,
        }
        _LOG.log(level, event, extra={**common, **fields})

    def record(self, kind: str, command_id: int | None, **data: Any) -> None:
        """Append one durable event, in the order of the calls, outside the event loop."""
        subject = f"worker:{self._name}/{self._instance}"
        known = {"generation": self._machine.generation, **data}
        self._writer.submit(self._append, f"worker.{kind}", command_id, subject, known)

    def _append(self, kind: str, command_id: int | None, subject: str, data: dict[str, Any]) -> None:
        try:
            self._store.events.append(kind, command_id=command_id, subject=subject, data=data)
        except DebugServerError as error:
            _LOG.warning("worker_event_lost", extra={"kind": kind, "error": str(error)})

    def update_metrics(self) -> None:
        """Update the metrics from the state machine."""
        if self._telemetry is None:
            return
        machine, telemetry = self._machine, self._telemetry
        labels = {"worker": self._name, "instance": str(self._instance)}
        telemetry.gauge("codex_worker_ready", int(machine.is_ready), **labels)
        telemetry.gauge("codex_worker_backoff_ms", round((machine.next_delay or 0.0) * 1000, 3), **labels)
        if machine.startup_ms is not None:
            telemetry.gauge("codex_worker_latency_ms", machine.startup_ms, **labels)
        if more := machine.restarts - self._counted:
            self._counted = machine.restarts
            telemetry.count("codex_worker_restarts_total", more, **labels)
            telemetry.count("codex_worker_restarts_inc_total", more, **labels)

    def on_output(self, stream: str, length: int) -> None:
        """Count output; logs the sum at most once a second."""
        self.sample = LogSample(stream=stream, length=length, at=self._clock.wall())
        now = self._clock.monotonic()
        logged_at, unlogged = self._streams.get(stream, (float("-inf"), 0))
        unlogged += length
        if now - logged_at >= _STREAM_SECONDS:
            self.log("worker_stream", stream=stream, stream_len=unlogged)
            logged_at, unlogged = now, 0
        self._streams[stream] = (logged_at, unlogged)

    def warn_of_crashes(self) -> None:
        """Log consecutive unexpected exits, with a higher level from the fifth on."""
        failures = self._machine.failures
        fields = {"consecutive_failures": failures, "backoff_ms": _ms(self._machine.next_delay)}
        if failures >= CRITICAL_FAILURES:
            self.log("worker_crash_loop", level=logging.CRITICAL, severity="critical", **fields)
        elif failures > 1:
            self.log("worker_crash_loop", level=logging.WARNING, **fields)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
