"""MCP over streamable HTTP at one path: each request needs a token, and no state is kept between requests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import Service, audit, mapping_of
from debug_server.service.caller import bearer_token
from debug_server.surfaces.mcp.admission import admit
from debug_server.surfaces.mcp.refusal import told
from debug_server.surfaces.mcp.toolsets import toolsets_of_query

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH = "/mcp"
_BODY_BYTES = 40 << 20  # the largest patch, escaped


class McpHttp:
    """The server at one path of an ASGI application.

    No session is kept in this process, so that clients continue after a restart. Serve it inside ``running()``, because
    the lifespan of a mounted application is not entered.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._manager: StreamableHTTPSessionManager | None = None
        self._wanted, self._loaded, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def route(self, path: str = PATH) -> Route:
        """For a Starlette application's routes."""
        return Route(path, endpoint=self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests during the block; call it once for each object."""
        serving = asyncio.create_task(self._serve())
        try:
            yield
        finally:
            self._over.set()
            self._wanted.set()
            await serving

    async def _serve(self) -> None:
        """Load the SDK for the first request; it runs in this task, because the task that starts it must close it."""
        await self._wanted.wait()
        try:
            if not self._over.is_set():
                manager = await asyncio.to_thread(_load, self._service)
                async with manager.run():
                    self._manager = manager
                    self._loaded.set()
                    await self._over.wait()
        finally:
            self._manager = None
            self._loaded.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            caller = await self._service.authenticate(bearer_token(Headers(scope=scope).get("authorization")))
            toolsets = toolsets_of_query(scope["query_string"])
            manager = await self._ready()
            receive = await _received(scope, receive)
        except DebugServerError as error:
            await _refusal(error)(scope, receive, send)
            return
        await manager.handle_request(admit(scope, caller, audit.request_id(), toolsets), receive, send)

    async def _ready(self) -> StreamableHTTPSessionManager:
        self._wanted.set()
        await self._loaded.wait()
        if self._manager is None:
            raise UnavailableError("the server is shutting down: try again in a moment", retry_after=2.0)
        return self._manager


async def _received(scope: Scope, receive: Receive) -> Receive:
    """Read the body in advance: the SDK would report a client that disconnects during it as an internal error."""
    parts: list[Message] = [{"type": "http.request", "body": await Request(scope, receive).body(), "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again


def _load(service: Service) -> StreamableHTTPSessionManager:
    from mcp.server.transport_security import TransportSecuritySettings

    from debug_server.surfaces.mcp.server import build_mcp

    mcp = build_mcp(service)
    mcp.streamable_http_app(
        stateless_http=True,
        max_request_body_size=_BODY_BYTES,
        # Not needed: every request needs a token, which a page that uses DNS rebinding does not have.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return mcp.session_manager


def _refusal(error: DebugServerError) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if mapping_of(error).http == 401 else {}
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told(error)}, mapping_of(error).http, headers)
