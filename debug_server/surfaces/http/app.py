"""The ASGI application: every route over one service."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp

from debug_server.messages import OPERATIONS, ROUTES
from debug_server.messages.routes import VERSIONED
from debug_server.messages.routes import Route as TableRoute
from debug_server.ports import Part
from debug_server.service import Service
from debug_server.surfaces.http import probes
from debug_server.surfaces.http.documented_routes import DocumentedRoute
from debug_server.surfaces.http.endpoints import (
    Endpoint,
    artifact_file,
    operation_endpoint,
    session_diff,
    start_run_endpoint,
    with_error_responses,
)
from debug_server.surfaces.http.execs import ExecEndpoints
from debug_server.surfaces.http.html_pages import SECURITY_HEADERS, front_page, front_text
from debug_server.surfaces.http.logs import LogEndpoints
from debug_server.surfaces.http.middleware import RequestMiddleware
from debug_server.surfaces.http.refusals import routing_error_response
from debug_server.surfaces.http.route_table import ApiRoute, RouteTable
from debug_server.surfaces.http.sockets import SocketEndpoints
from debug_server.surfaces.http.streaming import OpenStreams, SharedBytes

TITLE = "debug-server"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The settings of the application."""

    version: str = "0"
    heartbeat_seconds: float = 15.0  # of silence on an event stream
    api: bool = True  # False: only the probes and the routes of parts


class HttpApp(Starlette):
    """An application with its open streams, its parts and an OpenAPI document."""

    def __init__(
        self,
        *,
        settings: HttpSettings,
        streams: OpenStreams,
        parts: Sequence[Part],
        lifespan: Lifespan | None,
        draining: Callable[[], bool],
    ) -> None:
        super().__init__(lifespan=lifespan, exception_handlers={HTTPException: routing_error_response})
        self._draining = draining
        self.table = RouteTable()
        self.streams = streams
        self.parts = parts
        self._settings = settings
        self._document: dict[str, Any] | None = None
        self._encoded: bytes | None = None
        self._reference: bytes | None = None

    def build_middleware_stack(self) -> ASGIApp:
        """Our middleware around everything; requests that the table knows do not pass through Starlette's."""
        return RequestMiddleware(super().build_middleware_stack(), find=self.table.find, draining=self._draining)

    def add_api_route(self, row: TableRoute, endpoint: Endpoint) -> None:
        """Serve a route of the table."""
        route = ApiRoute(row, endpoint)
        self.router.routes.append(route)
        self.table.add(route)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, created on first use."""
        if self._document is None:
            from debug_server.surfaces.http.openapi import document

            self._document = document(TITLE, self._settings.version, self.routes, api=self._settings.api)
        return self._document

    def encoded_document(self) -> bytes:
        """The same as JSON; encoded once, because everybody may ask for it."""
        if self._encoded is None:
            self._encoded = json.dumps(self.openapi(), ensure_ascii=False, separators=(",", ":")).encode()
        return self._encoded

    def reference(self) -> bytes:
        """The same as a page, made once."""
        if self._reference is None:
            from debug_server.surfaces.http.html_pages import reference_page

            self._reference = reference_page(self.openapi()).encode()
        return self._reference

    @property
    def version(self) -> str:
        """The server's version."""
        return self._settings.version


Lifespan = Callable[[HttpApp], AbstractAsyncContextManager[None]]


def create_http_app(
    service: Service,
    *,
    metrics: Callable[[], str],
    settings: HttpSettings | None = None,
    lifespan: Lifespan | None = None,
    parts: Sequence[Part] = (),
) -> HttpApp:
    """Create the application; ``app.streams.leave()`` ends its open streams."""
    settings = settings or HttpSettings()
    app = HttpApp(
        settings=settings,
        streams=OpenStreams(service.followers),
        parts=parts,
        lifespan=lifespan,
        draining=lambda: service.draining,
    )
    probing: dict[str, Endpoint] = {
        "/health": probes.health,
        "/livez": probes.alive(parts),
        "/healthz": probes.status(service, settings.version, parts),
        "/readyz": probes.ready(service, parts),
        "/metrics": probes.metrics(service, metrics),
    }
    if settings.api:
        _add_api(app, service, settings.heartbeat_seconds, probing)
    for part in parts:  # before the probes, so that a part may replace one of them
        app.router.routes.extend(part.routes())
    versioned = [route for route in app.router.routes if isinstance(route, ApiRoute | DocumentedRoute | WebSocketRoute)]
    for path, endpoint in probing.items():
        app.router.routes.append(Route(path, with_error_responses(endpoint), methods=["GET"]))
    app.router.routes.append(Route("/openapi.json", _document))
    app.router.routes.append(Route("/docs", _reference))
    app.router.routes.append(Route("/", _front_page))
    app.router.routes.append(Mount(VERSIONED, routes=versioned))
    return app


def _add_api(app: HttpApp, service: Service, heartbeat_seconds: float, probing: Collection[str]) -> None:
    streams = app.streams
    logs = LogEndpoints(service=service, streams=streams, heartbeat_seconds=heartbeat_seconds)
    specials: dict[str, Endpoint] = {
        "start_run": start_run_endpoint(service),
        "diff_session": session_diff(service),
        "artifact_file": artifact_file(service),
        **logs.routes(),
        **ExecEndpoints(service=service, streams=streams, heartbeat_seconds=heartbeat_seconds).routes(),
    }
    for operation in OPERATIONS.values():
        if operation.name not in specials and operation.route.path not in probing:
            app.add_api_route(operation.route, operation_endpoint(service, operation))
    for name, endpoint in specials.items():
        app.add_api_route(ROUTES[name], endpoint)
    for path, socket in SocketEndpoints(service=service, streams=streams).routes().items():
        app.router.routes.append(WebSocketRoute(path, socket))


async def _document(request: Request) -> Response:
    return SharedBytes(request.app.encoded_document(), media_type="application/json")


async def _reference(request: Request) -> Response:
    return SharedBytes(request.app.reference(), headers=SECURITY_HEADERS, media_type="text/html")


async def _front_page(request: Request) -> Response:
    host = request.headers.get("host", "127.0.0.1:8000")
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(front_page(TITLE, request.app.version, host), headers=SECURITY_HEADERS)
    return PlainTextResponse(front_text(TITLE, request.app.version, host))
