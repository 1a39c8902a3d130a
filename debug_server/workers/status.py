"""The status object of a worker: plain values for probes, lists and errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from debug_server.workers.state import LivenessReason, Machine, Phase, ReadinessReason, Since


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSample:
    """The last output of a worker: stream and length, never the content."""

    stream: str
    length: int
    at: datetime

    def to_json(self) -> dict[str, Any]:
        """As the status object shows it."""
        return {"stream": self.stream, "stream_len": self.length, "ts": _moment(self.at)}


def worker_status(
    machine: Machine, *, name: str, instance: int, in_flight: int, sample: LogSample | None
) -> dict[str, Any]:
    """The full status of one worker."""
    return {
        "name": name,
        "instance": instance,
        "phase": machine.phase.value,
        "generation": machine.generation,
        "in_flight": in_flight,
        "enabled": True,
        "running": machine.is_running,
        "ready": machine.is_ready,
        "shutdown_in_flight": machine.phase in (Phase.DRAINING, Phase.STOPPING),
        "pid": machine.pid,
        "restarts_total": machine.restarts,
        "consecutive_failures": machine.failures,
        "last_exit": None if machine.last_exit is None else machine.last_exit.to_json(),
        "last_ready_at": _moment(machine.last_ready_at),
        "startup_latency_ms": machine.startup_ms,
        "next_restart_delay_ms": None if machine.next_delay is None else round(machine.next_delay * 1000, 3),
        "last_log_sample": None if sample is None else sample.to_json(),
        "metrics": _metrics(machine.restarts, machine.startup_ms),
        "health": {
            "readiness": {
                **_probe("ready", machine.is_ready, machine.readiness, machine.readiness_since),
                "handshake": machine.handshake,
                "details": {"error": machine.error} if machine.error else {},
            },
            "liveness": {
                **_probe("live", machine.live, machine.liveness, machine.liveness_since),
                "details": {"consecutive_failures": machine.failures},
            },
        },
    }


def restart_advice(name: str) -> str:
    """The message for a worker that has reached its restart limit."""
    return (
        f"worker {name} has reached its restart limit and stays stopped: see its log, then restart it with "
        f"POST /workers/{name}/restart or `debug-server worker restart {name}`"
    )


def absent_status(reason: ReadinessReason, at: datetime) -> dict[str, Any]:
    """The status object without a worker: disabled, or not created yet."""
    since = Since(answer=at, reason=at)
    return {
        "enabled": reason is not ReadinessReason.APP_SERVER_DISABLED,
        "running": False,
        "ready": False,
        "shutdown_in_flight": False,
        "pid": None,
        "restarts_total": 0,
        "consecutive_failures": 0,
        "last_exit": None,
        "last_ready_at": None,
        "startup_latency_ms": None,
        "next_restart_delay_ms": None,
        "last_log_sample": None,
        "metrics": _metrics(0, None),
        "health": {
            "readiness": {**_probe("ready", False, reason, since), "handshake": None, "details": {}},
            "liveness": {**_probe("live", False, LivenessReason.WORKER_NOT_STARTED, since), "details": {}},
        },
    }


def _metrics(restarts: int, startup_ms: float | None) -> dict[str, Any]:
    return {"codex_worker_restarts_total": restarts, "codex_worker_latency_ms": startup_ms}


def _probe(name: str, answer: bool, reason: str, since: Since) -> dict[str, Any]:
    return {
        name: answer,
        "reason": str(reason),
        "since": _moment(since.answer),
        "last_change_at": _moment(since.reason),
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="milliseconds")
