"""Forwards MCP over stdin and stdout to the MCP endpoint of a server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError, types
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from pydantic import AnyUrl

from debug_server import __version__
from debug_server.errors import AccessError, UnavailableError, UnreachableError
from debug_server.sockets.trust import HttpTrust, TrustedServerUser
from debug_server.surfaces.mcp.calls import as_mcp
from debug_server.surfaces.mcp.http import PATH
from debug_server.surfaces.mcp.refusal import failed
from debug_server.surfaces.mcp.server import INSTRUCTIONS
from debug_server.surfaces.mcp.toolsets import PARAMETER, Toolsets, listed

T = TypeVar("T")
_TIMEOUT = httpx2.Timeout(30.0, read=3660.0)  # a tool may wait for an hour
_RETRY_SECONDS = 2.0


class Bridge(MCPServer[Any]):
    """The tools and resources of one server. Each request has its own connection, so the server may restart."""

    def __init__(
        self, base_url: str, token: str | None, *, verify_tls: bool, server_uid: int | None, toolsets: Toolsets
    ) -> None:
        super().__init__(
            "debug-server",
            title="Debug Server",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
            subscriptions=False,
        )
        self._base_url = base_url.rstrip("/")
        self._url = f"{self._base_url}{PATH}?{PARAMETER}={listed(toolsets)}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._verify_tls = verify_tls
        self._trusted = TrustedServerUser(uid=server_uid)
        self._has_verified_tls = verify_tls and base_url.startswith("https://")

    async def list_tools(self) -> list[types.Tool]:
        """The server's tools."""
        return (await self._ask(lambda client: client.list_tools())).tools

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult:
        """Call a tool and pass on its progress."""

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            if context is not None:
                await context.report_progress(progress, total, message)

        # Not the client's call_tool, which lists all tools again to check the result.
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        try:
            return await self._reach(
                lambda client: client.session.send_request(
                    request, types.CallToolResult, progress_callback=report_progress
                )
            )
        except (UnavailableError, AccessError) as error:
            return failed(error)

    async def list_resource_templates(self) -> list[types.ResourceTemplate]:
        """The server's resource templates."""
        return (await self._ask(lambda client: client.list_resource_templates())).resource_templates

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents]:
        """Read a resource of the server."""
        found = await self._ask(lambda client: client.read_resource(str(uri)))
        return [_contents(item) for item in found.contents]

    async def _ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        try:
            return await self._reach(work)
        except (UnavailableError, AccessError) as error:
            raise as_mcp(error) from error

    async def _reach(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """UnreachableError if the server cannot be reached; its own errors are passed on unchanged."""
        trust = HttpTrust(self._trusted, connection_error=httpx2.ConnectError)
        hooks = [] if self._has_verified_tls else [trust.async_hook]
        try:
            async with httpx2.AsyncClient(
                headers=self._headers, verify=self._verify_tls, timeout=_TIMEOUT, event_hooks={"request": hooks}
            ) as http:
                # The server bounds its answers itself.
                transport = streamable_http_client(self._url, http_client=http, max_sse_event_size=None)
                async with Client(transport) as client:
                    return await work(client)
        except (MCPError, httpx2.HTTPError, OSError) as error:
            raise trust.refusal or self._as_unavailable(error) from error
        except BaseExceptionGroup as group:  # the client's tasks fail together
            raise trust.refusal or self._as_unavailable(_first(group)) from group

    def _as_unavailable(self, error: BaseException) -> BaseException:
        if isinstance(error, httpx2.HTTPError | OSError):
            from debug_server.client.failures import wrong_protocol  # only where it is needed

            if (reason := wrong_protocol(self._base_url, error)) is not None:
                return UnreachableError(reason, retry_after=_RETRY_SECONDS)
            sentence = f"the server at {self._base_url} cannot be reached ({error}): is it running?"
            return UnreachableError(sentence, retry_after=_RETRY_SECONDS)
        return error


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _contents(item: types.TextResourceContents | types.BlobResourceContents) -> ReadResourceContents:
    data = item.text if isinstance(item, types.TextResourceContents) else base64.b64decode(item.blob)
    return ReadResourceContents(content=data, mime_type=item.mime_type, meta=item.meta)


def run_bridge(
    base_url: str, token: str | None, *, verify_tls: bool, server_uid: int | None, toolsets: Toolsets
) -> None:
    """Serve whoever started this process, over its stdin and stdout, until stdin ends."""
    bridge = Bridge(base_url, token, verify_tls=verify_tls, server_uid=server_uid, toolsets=toolsets)
    asyncio.run(bridge.run_stdio_async())
