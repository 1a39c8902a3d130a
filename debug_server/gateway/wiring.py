"""Puts the gateway together over the server's workers and service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from debug_server.config import load_worker
from debug_server.config.gateway import GatewayConfig
from debug_server.gateway.part import GatewayPart, Surroundings
from debug_server.gateway.protocol_log import ProtocolLog
from debug_server.gateway.worker import NAME, base_turn, diagnose, prepare_folders, worker_spec
from debug_server.ports import Telemetry
from debug_server.service import Service
from debug_server.workers.codex import PROTOCOL, CodexOptions, codex_handshake
from debug_server.workers.interface import SupervisedWorker
from debug_server.workers.spec import WorkerTiming
from debug_server.workers.state import ReadinessReason
from debug_server.workers.status import absent_status
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.workers import Workers

_REPLACING: set[asyncio.Future[None]] = set()  # a loop forgets what nobody holds
_SCOPES = ("commands:write",)  # a turn may run commands


def gateway_part(
    config: GatewayConfig,
    *,
    workers: Workers,
    service: Service,
    telemetry: Telemetry,
    render_metrics: Callable[[], str],
    environ: Mapping[str, str],
    owners: Collection[int] | None = None,
) -> GatewayPart:
    """The part; declares its worker unless one of that name is declared already. Call it before workers start."""

    async def check_token(secret: str) -> str:
        caller = await service.authenticate(secret)
        caller.require(_SCOPES)
        return caller.name

    since = datetime.now(UTC)
    _, workdir = prepare_folders(config.codex, owners)
    path = config.observation.protocol_log
    protocol_log = ProtocolLog(path) if path is not None else None
    if config.codex.enabled:
        _declare(config, workers, environ, protocol_log, owners)
    return GatewayPart(
        config,
        Surroundings(
            pick=(lambda: workers.pick(NAME)) if config.codex.enabled else None,
            absent=lambda: absent_status(ReadinessReason.APP_SERVER_DISABLED, since),
            check_token=check_token,
            check_own_user=service.own_user.http_refusal,
            telemetry=telemetry,
            render_metrics=render_metrics,
            base=base_turn(config, workdir),
            replace=_replace,
            protocol_log=protocol_log,
            diagnose=lambda: diagnose(config.codex, environ),
        ),
    )


def _replace(worker: SupervisedWorker) -> None:
    assert isinstance(worker, ServiceSupervisor)
    replacing = asyncio.ensure_future(worker.restart())
    _REPLACING.add(replacing)
    replacing.add_done_callback(_REPLACING.discard)


def _declare(
    config: GatewayConfig,
    workers: Workers,
    environ: Mapping[str, str],
    protocol_log: ProtocolLog | None,
    owners: Collection[int] | None,
) -> None:
    workers.handshakes[PROTOCOL] = codex_handshake(
        CodexOptions(
            handshake_seconds=config.codex.handshake_timeout_ms / 1000,
            request_seconds=config.codex.request_timeout_ms / 1000,
            trace=protocol_log.note if protocol_log is not None else None,
        )
    )
    if not workers.declares(NAME):
        timing = WorkerTiming.from_config(load_worker(NAME, {}, source="variables", environ=environ).value)
        workers.add(worker_spec(config.codex, timing, owners))
