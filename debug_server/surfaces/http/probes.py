"""Health, readiness and metrics: what needs no token."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from debug_server.errors import AccessError
from debug_server.service import Service
from debug_server.service import messages as m
from debug_server.surfaces.http.access import is_trusted
from debug_server.surfaces.http.endpoints import Endpoint

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def health(request: Request) -> Response:
    """``GET /health``: the process answers."""
    return JSONResponse({"status": "ok"})


async def alive(request: Request) -> Response:
    """``GET /livez``: the same in the words of orchestrators."""
    return JSONResponse({"message": "alive", "ok": True})


def status(service: Service, version: str) -> Endpoint:
    """``GET /healthz``: that, and whether the server is on its way out."""

    async def handle(request: Request) -> Response:
        return JSONResponse({"message": "ok", "ok": True, "draining": service.draining, "version": version})

    return handle


def ready(service: Service) -> Endpoint:
    """``GET /readyz``: store, disk and keepers, checked now; strangers do not learn why one fails."""

    async def handle(request: Request) -> Response:
        found = await service.health(None, m.Nothing())
        checks = found.checks
        if not await is_trusted(service, request):
            checks = {name: "ok" if result == "ok" else "failed" for name, result in checks.items()}
        ok = found.ok and not service.draining
        message = "draining" if service.draining else found.message
        headers = {} if ok else {"Retry-After": "1"}
        return JSONResponse({"message": message, "ok": ok, "checks": checks}, 200 if ok else 503, headers)

    return handle


def metrics(service: Service, render: Callable[[], str]) -> Endpoint:
    """``GET /metrics`` for this machine, or for whoever has a token."""

    async def handle(request: Request) -> Response:
        if not await is_trusted(service, request):
            raise AccessError("metrics are for this machine or for a token: send `Authorization: Bearer TOKEN`")
        return Response(render(), media_type=_METRICS_TYPE)

    return handle
