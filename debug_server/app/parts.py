"""The parts of the server by name; a server may run with a subset of them.

api         sessions, commands, logs: REST, WebSocket, SSE, MCP and the gRPC service ``debug_server.v1``
tasks       host tasks below ``/tasks``
dispatch    events to runners: the kanban services, ``/kanban/events`` and ``/hooks``
gateway     the OpenAI-compatible API below ``/v1`` over a codex worker
workers     supervised long-lived processes; other parts use them, so every subset has them
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from debug_server.ports import Part

if TYPE_CHECKING:
    from debug_server.app.local import Local
    from debug_server.dispatch.governor import Governor

API, TASKS, DISPATCH, GATEWAY, WORKERS = "api", "tasks", "dispatch", "gateway", "workers"


def _tasks(local: Local) -> Part:
    from debug_server.config import load
    from debug_server.config.tasks import TasksConfig
    from debug_server.surfaces.http.tasks import TasksPart
    from debug_server.tasks import Tasks

    config = load(
        TasksConfig,
        files=local.location.files("tasks.toml"),
        environ=os.environ,
        trusted_uids=local.location.trusted_uids,
    ).value
    containers_dir = local.settings.paths.artifacts_root / "containers"
    isolation = local.settings.isolation.elsewhere
    tasks = Tasks(local.service, config=config, containers_dir=containers_dir, isolation=isolation)
    return TasksPart(local.service, tasks)


def _dispatch(local: Local) -> Part | None:
    from debug_server.dispatch.configuration import LiveConfiguration
    from debug_server.dispatch.folder import load_dispatch

    settings, folder = load_dispatch(local.location)
    if not folder.is_used:
        return None
    from debug_server.dispatch.governor import Governor
    from debug_server.surfaces.http.kanban import kanban_routes

    governor = Governor(
        local.service,
        LiveConfiguration(folder.path, trusted_uids=folder.trusted_uids),
        shell=local.settings.default_shell,
        hook_secret=settings.hook_secret,
    )
    governor.make_routes = lambda: kanban_routes(governor)
    governor.make_services = lambda: _kanban_services(governor)
    return governor


def _kanban_services(governor: Governor) -> Mapping[str, Any]:
    from debug_server.surfaces.grpc.kanban import KanbanServices

    return KanbanServices(governor).handlers()


def has_gateway(local: Local) -> bool:
    """Whether the gateway is configured: by its own setting, or by a declared worker ``codex``."""
    return local.gateway_config.source("codex.enabled") != "default" or local.workers.declares("codex")


def _gateway(local: Local) -> Part | None:
    if not has_gateway(local):
        return None
    from debug_server.disk import owners_of
    from debug_server.gateway import GatewayPart

    named = local.gateway_config.source("codex.home").startswith("variable")
    return GatewayPart(
        local.gateway_config.value,
        workers=local.workers,
        service=local.service,
        telemetry=local.telemetry,
        render_metrics=local.telemetry.render,
        environ=local.environ,
        trusted_uids=owners_of(local.gateway_config.value.codex.home) if named else local.location.trusted_uids,
    )


def _workers(local: Local) -> Part:
    from debug_server.workers.part import WorkersPart

    local.workers.check_protocols()
    return WorkersPart(local.workers)


# name -> function that imports and builds the part; it returns None if the part is not configured.
# The gateway comes before the workers because it declares one.
_BUILDERS: dict[str, Callable[[Local], Part | None]] = {
    TASKS: _tasks,
    DISPATCH: _dispatch,
    GATEWAY: _gateway,
    WORKERS: _workers,
}
NAMES = frozenset({API, *_BUILDERS})


def build_parts(local: Local, names: Collection[str]) -> list[Part]:
    """The configured parts with these names, and always the workers."""
    made = [maker(local) for name, maker in _BUILDERS.items() if name in names or name == WORKERS]
    return [part for part in made if part is not None]
