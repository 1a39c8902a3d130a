"""The gateway as a part of the server: it declares its worker, brings its routes, and reports on the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.routing import BaseRoute, Route

from debug_server.config.gateway import GatewayConfig
from debug_server.gateway.access import Access
from debug_server.gateway.admission import Admission
from debug_server.gateway.codex_worker import NAME, base_turn, declare_worker, prepare_folders, worker_variables
from debug_server.gateway.endpoints import Endpoints
from debug_server.gateway.metrics import metrics_endpoint
from debug_server.gateway.protocol_log import ProtocolLog
from debug_server.gateway.routes import v1_routes
from debug_server.gateway.turn_runner import TurnRunner
from debug_server.gateway.usage import UsageLog
from debug_server.ports import Telemetry
from debug_server.service import Service
from debug_server.workers import (
    ReadinessReason,
    ServiceSupervisor,
    SupervisedWorker,
    Workers,
    absent_status,
    check_codex,
)

_LOG = logging.getLogger("debug_server.gateway")
_SCOPES = ("commands:write",)  # a turn may run commands


class GatewayPart:
    """``/v1`` over one supervised worker."""

    name = "gateway"

    def __init__(
        self,
        config: GatewayConfig,
        *,
        workers: Workers,
        service: Service,
        telemetry: Telemetry,
        render_metrics: Callable[[], str],
        environ: Mapping[str, str],
        trusted_uids: Collection[int] | None = None,
    ) -> None:
        """Declare the codex worker, unless a worker of that name is declared; call it before the workers start."""
        self._config = config
        self._workers = workers
        self._service = service
        self._telemetry = telemetry
        self._render_metrics = render_metrics
        self._environ = environ
        home, workdir = prepare_folders(config.codex, trusted_uids)
        self._home = home
        self._base = base_turn(config, workdir)
        self._created_at = datetime.now(UTC)
        path = config.observation.protocol_log
        self._protocol_log = ProtocolLog(path) if path is not None else None
        if config.codex.enabled:
            trace = self._protocol_log.note if self._protocol_log is not None else None
            declare_worker(config.codex, workers, environ, home=home, workdir=workdir, trace=trace)
        self._usage = UsageLog(config.observation.token_log)
        self._admission = Admission(config, streams_changed=self._streams_changed, worker_status=self.status)
        self._program: Mapping[str, Any] = {"checked": False}
        self._restarts: set[asyncio.Future[None]] = set()  # the event loop holds tasks only weakly

    def _streams_changed(self, count: int) -> None:
        self._telemetry.gauge("codex_streams_active", count)

    def routes(self) -> Sequence[BaseRoute]:
        """``/v1`` and ``/metrics``."""
        check_own_user = self._service.own_user.why_not_own_http_user
        endpoints = Endpoints(
            self._config,
            access=Access(self._config, self._check_token, check_own_user),
            admission=self._admission,
            turns=self._turn_runner(),
            usage=self._usage,
            base=self._base,
        )
        found = v1_routes(endpoints, config=self._config, telemetry=self._telemetry, worker_state=self._log_state)
        metrics = metrics_endpoint(self._config, self._check_token, check_own_user, self._render_metrics)
        return [*found, Route("/metrics", metrics, methods=["GET"])]

    async def _check_token(self, secret: str) -> str:
        caller = await self._service.authenticate(secret)
        caller.require(_SCOPES)
        return caller.name

    def _turn_runner(self) -> TurnRunner | None:
        if not self._config.codex.enabled:
            return None
        replace = self._restart if self._config.answers.kill_on_disconnect else None
        return TurnRunner(self._worker, self._admission, self._telemetry, replace)

    def _worker(self) -> SupervisedWorker:
        return self._workers.pick(NAME)

    def _restart(self, worker: SupervisedWorker) -> None:
        assert isinstance(worker, ServiceSupervisor)
        restarting = asyncio.ensure_future(worker.restart())
        self._restarts.add(restarting)
        restarting.add_done_callback(self._restarts.discard)

    def grpc_services(self) -> Mapping[str, Any]:
        """None."""
        return {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Check the worker's program in the background; at the end write what is not in the files yet."""
        self._telemetry.gauge("codex_maintenance_mode", float(self._config.access.maintenance))
        self._telemetry.gauge("codex_streams_active", 0)
        self._telemetry.gauge("codex_tool_buffer_anomaly", 0)
        checking = asyncio.ensure_future(self._check_program()) if self._config.codex.enabled else None
        try:
            yield
        finally:
            if checking is not None:
                checking.cancel()
                await asyncio.gather(checking, return_exceptions=True)
            await asyncio.to_thread(self._usage.close)
            if self._protocol_log is not None:
                self._protocol_log.close()

    async def _check_program(self) -> None:
        variables = worker_variables(self._home)
        self._program = await asyncio.to_thread(check_codex, self._config.codex.bin, self._environ, variables)
        if not self._program.get("ok"):
            _LOG.warning("worker_program_unusable", extra={"component": "worker", **self._program})

    def drain(self) -> None:
        """Refuse requests that have no worker yet; the worker refuses new turns and ends those that it has."""
        self._admission.drain()

    async def drained(self) -> None:
        """Nothing to wait for: running requests end with the worker's drain."""

    def status(self) -> dict[str, Any]:
        """The worker's status object."""
        if not self._config.codex.enabled:
            return absent_status(ReadinessReason.APP_SERVER_DISABLED, self._created_at)
        return self._worker().status()

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
        enabled = self._config.codex.enabled
        return {"backend_mode": "app-server" if enabled else "disabled", "app_server_enabled": enabled}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """For ``/readyz``; ready also while the worker is disabled."""
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
        passed = not self._config.codex.enabled or found[key]
        return "ok" if passed else str(found["reason"]), shown

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
