"""Health, readiness and metrics, for callers without a token too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from debug_server import messages as m
from debug_server.ports import Part
from debug_server.service import Service
from debug_server.surfaces.http.access import identify_or_local, is_identified
from debug_server.surfaces.http.endpoints import Endpoint

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """``GET /health``: the process answers."""
    return JSONResponse({"status": "ok"})


def alive(parts: Sequence[Part]) -> Endpoint:
    """``GET /livez``: the process answers and no part has given up."""

    async def handle(request: Request) -> Response:
        found = [part.liveness() for part in parts]
        ok = all(verdict == "ok" for verdict, _ in found)
        shown = [more for _, more in found]
        return _probe_response({"message": "alive" if ok else "not alive", "ok": ok}, shown, 200 if ok else 503)

    return handle


def status(service: Service, version: str, parts: Sequence[Part]) -> Endpoint:
    """``GET /healthz``: the state of the server and its parts; always 200, and ``ok`` unless one is degraded."""

    async def handle(request: Request) -> Response:
        told = [part.health() for part in parts]
        degraded = [str(more["degraded"]) for more in told if more.get("degraded")]
        message = "; ".join(degraded) or "ok"
        own = {"message": message, "ok": not degraded, "draining": service.draining, "version": version}
        return _probe_response(own, told)

    return handle


def ready(service: Service, parts: Sequence[Part]) -> Endpoint:
    """``GET /readyz``: store, disk, keepers and parts, checked now; anonymous callers do not see why one fails."""

    async def handle(request: Request) -> Response:
        found = await service.health.check(None, m.EmptyRequest())
        states = {part.name: part.readiness() for part in parts}
        checks = {**found.checks, **{name: verdict for name, (verdict, _) in states.items()}}
        ok = all(result == "ok" for result in checks.values()) and not service.draining
        if not ok and not await is_identified(service, request):  # while everything works, nothing needs to be hidden
            checks = {name: "ok" if result == "ok" else "failed" for name, result in checks.items()}
        message = "draining" if service.draining else "ready" if ok else "not ready"
        own = {"message": message, "ok": ok, "checks": checks}
        return _probe_response(own, [more for _, more in states.values()], 200 if ok else 503)

    return handle


def _probe_response(own: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], status_code: int = 200) -> Response:
    """The server's fields last, so that no part replaces them."""
    content: dict[str, Any] = {}
    for more in (*parts, own):
        content |= more
    return JSONResponse(content, status_code, {} if status_code == 200 else {"Retry-After": "1"})


def metrics(service: Service, render: Callable[[], str]) -> Endpoint:
    """``GET /metrics``, for the server's own user or with a token."""

    async def handle(request: Request) -> Response:
        await identify_or_local(service, request)
        return Response(render(), media_type=_METRICS_TYPE)

    return handle
