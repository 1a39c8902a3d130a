"""The gateway as a part of the one server: its routes, its life, and what the probes say of the worker behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.routing import BaseRoute, Route

from debug_server.config.gateway import GatewayConfig
from debug_server.gateway.access import Access, OwnUserCheck, TokenCheck
from debug_server.gateway.admission import Admission
from debug_server.gateway.answering import Answering, Pick, Replace
from debug_server.gateway.endpoints import Endpoints
from debug_server.gateway.metrics import metrics_endpoint
from debug_server.gateway.protocol_log import ProtocolLog
from debug_server.gateway.routes import v1_routes
from debug_server.gateway.usage import UsageLog
from debug_server.ports import Telemetry
from debug_server.workers.codex_turn import TurnRequest

_LOG = logging.getLogger("debug_server.gateway")
Diagnose = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the gateway is given by whoever puts the server together."""

    pick: Pick | None  # None: the worker is turned off
    absent: Callable[[], dict[str, Any]]  # the status object of a worker that is not there
    check_token: TokenCheck
    check_own_user: OwnUserCheck
    telemetry: Telemetry
    render_metrics: Callable[[], str]
    base: TurnRequest
    diagnose: Diagnose  # asks the worker's program who it is; blocks
    replace: Replace  # a worker that is stuck
    protocol_log: ProtocolLog | None


class GatewayPart:
    """``/v1`` over one supervised worker."""

    name = "gateway"

    def __init__(self, config: GatewayConfig, around: Surroundings) -> None:
        self._config = config
        self._around = around
        self._usage = UsageLog(config.observation.token_log)
        self._admission = Admission(config, streams_changed=self._streams_changed, worker_status=self.status)
        self._program: Mapping[str, Any] = {"checked": False}

    def _streams_changed(self, count: int) -> None:
        self._around.telemetry.gauge("codex_streams_active", count)

    def routes(self) -> Sequence[BaseRoute]:
        """``/v1`` and ``/metrics``."""
        endpoints = Endpoints(
            self._config,
            access=Access(self._config, self._around.check_token, self._around.check_own_user),
            admission=self._admission,
            answering=self._answering(),
            usage=self._usage,
            base=self._around.base,
        )
        found = v1_routes(
            endpoints, config=self._config, telemetry=self._around.telemetry, worker_state=self._log_state
        )
        around = self._around
        metrics = metrics_endpoint(self._config, around.check_token, around.check_own_user, around.render_metrics)
        return [*found, Route("/metrics", metrics, methods=["GET"])]

    def _answering(self) -> Answering | None:
        if self._around.pick is None:
            return None
        replace = self._around.replace if self._config.answers.kill_on_disconnect else None
        return Answering(self._around.pick, self._admission, self._around.telemetry, replace)

    def grpc_services(self) -> Mapping[str, Any]:
        """None."""
        return {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Asks the worker's program who it is, beside everything else; at the end writes what waits."""
        self._around.telemetry.gauge("codex_maintenance_mode", float(self._config.access.maintenance))
        self._around.telemetry.gauge("codex_streams_active", 0)
        self._around.telemetry.gauge("codex_tool_buffer_anomaly", 0)
        asking = asyncio.ensure_future(self._diagnose()) if self._around.pick is not None else None
        try:
            yield
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await asyncio.to_thread(self._usage.close)
            if self._around.protocol_log is not None:
                self._around.protocol_log.close()

    async def _diagnose(self) -> None:
        self._program = await asyncio.to_thread(self._around.diagnose)
        if not self._program.get("ok"):
            _LOG.warning("worker_program_unfit", extra={"component": "worker", **self._program})

    def drain(self) -> None:
        """Refuse requests that have no worker yet; the worker refuses new ones and ends those that it has."""
        self._admission.drain()

    async def drained(self) -> None:
        """Nothing of its own: requests under way end with the worker's drain."""

    def status(self) -> dict[str, Any]:
        """The worker's status object."""
        pick = self._around.pick
        return pick().status() if pick is not None else self._around.absent()

    def health(self) -> Mapping[str, Any]:
        """For ``/healthz``."""
        status = self.status()
        return {
            **self._common(),
            "sandbox_mode": self._config.codex.sandbox,
            "maintenance_mode": self._config.access.maintenance,
            "health": status["health"],
            "worker_supervisor": status,
            "worker_program": dict(self._program),
        }

    def _common(self) -> dict[str, Any]:
        enabled = self._around.pick is not None
        return {"backend_mode": "app-server" if enabled else "disabled", "app_server_enabled": enabled}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """For ``/readyz``: a worker that is turned off is no reason to say no."""
        return self._verdict("readiness", "ready")

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """For ``/livez``."""
        return self._verdict("liveness", "live")

    def _verdict(self, which: str, key: str) -> tuple[str, Mapping[str, Any]]:
        status = self.status()
        found = status["health"][which]
        restarts = {name: status.get(name) for name in ("restarts_total", "consecutive_failures", "last_exit")}
        details = {
            **(found.get("details") or {}),
            **restarts,
            "next_restart_delay_ms": status.get("next_restart_delay_ms"),
        }
        shown = {**self._common(), "health": {which: {**found, "details": details}}, "worker_supervisor": status}
        fine = self._around.pick is None or found[key]
        return "ok" if fine else str(found["reason"]), shown

    def _log_state(self) -> dict[str, Any]:
        """The worker's fields of a log record."""
        status = self.status()
        state = "ready" if status["ready"] else "running" if status.get("pid") else "stopped"
        if status["running"] and not status["ready"]:
            state = "starting"
        return {
            "worker_state": state,
            "restart_count": status.get("restarts_total", 0),
            "backoff_ms": status.get("next_restart_delay_ms") or 0,
            "maintenance_mode": self._config.access.maintenance,
        }
