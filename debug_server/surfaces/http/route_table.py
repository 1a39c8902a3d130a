"""The routes of the table of operations, found without trying one after the other."""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from debug_server.messages.routes import VERSIONED
from debug_server.messages.routes import Route as TableRoute
from debug_server.surfaces.http.endpoints import Endpoint, with_error_responses


class ApiRoute(Route):
    """A route of the table."""

    def __init__(self, row: TableRoute, endpoint: Endpoint) -> None:
        super().__init__(row.path, _EndpointApp(with_error_responses(endpoint)), methods=[row.method])


class _EndpointApp:
    """An endpoint as an ASGI application. Its errors are responses already, so it needs no handler of exceptions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


class RouteTable:
    """Routes by method and number of segments; trying all of them would cost each request 0.1 ms."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, int], list[ApiRoute]] = {}

    def add(self, route: ApiRoute) -> None:
        """Add a route."""
        for method in route.methods or ():
            self._routes.setdefault((method, route.path.count("/")), []).append(route)

    def find(self, scope: Scope) -> ASGIApp | None:
        """The application of a request's route, with or without the version in its path; None for other requests."""
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        path: str = scope["path"].removeprefix(VERSIONED)
        for route in self._routes.get((scope["method"], path.count("/")), ()):
            if (match := route.path_regex.match(path)) is not None:
                scope["path_params"] = match.groupdict()
                return route.app
        return None
