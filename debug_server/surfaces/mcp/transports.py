"""The two ways in: streamable HTTP with a token for each request, and the standard streams of a private process."""

from __future__ import annotations

import asyncio
import math
from contextlib import AbstractAsyncContextManager

from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import LOCAL, Caller, Service, mapping_of
from debug_server.surfaces.mcp.calls import CALLER, as_mcp
from debug_server.surfaces.mcp.server import build_mcp

PATH = "/mcp"
_BODY_BYTES = 40 << 20  # the largest patch, escaped


class McpHttp:
    """The server at one path of an ASGI application.

    Each request stands alone (no session is kept in this process), so that a client goes on after a restart. Serve it
    inside ``running()``; a mounted application's own lifespan would not be entered.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mcp = build_mcp(service)
        self._mcp.streamable_http_app(
            stateless_http=True,
            max_request_body_size=_BODY_BYTES,
            # A page that was lured here by a forged name has no token, and without one nothing is answered.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Whatever requests need while they are served; can be entered once."""
        return self._mcp.session_manager.run()

    def route(self, path: str = PATH) -> Route:
        """For a Starlette or FastAPI application's routes."""
        return Route(path, endpoint=self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            caller = await self._service.authenticate(_bearer(Headers(scope=scope)))
        except DebugServerError as error:
            await _refusal(error)(scope, receive, send)
            return
        await self._mcp.session_manager.handle_request({**scope, CALLER: caller}, receive, send)


def _bearer(headers: Headers) -> str | None:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def _refusal(error: DebugServerError) -> JSONResponse:
    told = as_mcp(error).error.model_dump(mode="json")
    headers = {"WWW-Authenticate": "Bearer"} if mapping_of(error).http == 401 else {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told}, mapping_of(error).http, headers)


async def serve_stdio(service: Service, *, caller: Caller = LOCAL) -> None:
    """Serve whoever started this process, over its stdin and stdout, until stdin ends."""
    await build_mcp(service, caller=caller).run_stdio_async()


def run_stdio(service: Service, *, caller: Caller = LOCAL) -> None:
    """The same, from code that is not asynchronous."""
    asyncio.run(serve_stdio(service, caller=caller))
