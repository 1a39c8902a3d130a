"""The MCP server: finds the requested tool or resource, decodes, calls, encodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from mcp import types
from mcp.server import MCPServer
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from pydantic import AnyUrl

from debug_server import __version__
from debug_server import messages as m
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.service import Caller, Service
from debug_server.surfaces.mcp import resources
from debug_server.surfaces.mcp.admission import request_id_of
from debug_server.surfaces.mcp.calls import Call, as_mcp, caller_of, decoded, recorded
from debug_server.surfaces.mcp.refusal import failed
from debug_server.surfaces.mcp.text import text_of
from debug_server.surfaces.mcp.tools import IDEMPOTENCY_KEY, TOOLS, Tool

INSTRUCTIONS = """\
Runs commands on commits of registered git repositories, each in a private workspace, and keeps every log.
For one command use `run`. For several in one workspace: session_create, submit_command, wait_command, session_close.
Answers contain a digest of the log; @N is a byte offset in the log: read_log reads from there, or searches with grep.
A command continues after a call has returned: call wait_command again, or cancel_command to end it."""


def build_mcp(service: Service, *, caller: Caller | None = None) -> MCPServer[Any]:
    """Create the server. ``caller`` is the peer of a private stream; without it, each message must come over HTTP from
    an authenticated caller."""
    return _Server(service, caller)


class _Server(MCPServer[Any]):
    """The SDK's server with our tables of tools and resources instead of its registries."""

    def __init__(self, service: Service, caller: Caller | None) -> None:
        super().__init__(
            "debug-server",
            title="Debug Server",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
            subscriptions=False,
        )
        self._service = service
        self._caller = caller

    async def list_tools(self) -> list[types.Tool]:
        """Every tool of the table."""
        return _described()

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult:
        """One call of one tool."""
        call = self._call(context)
        tool = TOOLS.get(name)
        try:
            async with recorded(f"tools/{name[:64]}", call):
                if tool is None:
                    raise InvalidInputError(f"there is no tool {name[:64]!r}: tools/list names them")
                return _result(await _called(tool, call, arguments))
        except DebugServerError as error:
            if tool is None:
                raise as_mcp(error) from error
            return failed(error)

    async def list_resource_templates(self) -> list[types.ResourceTemplate]:
        """Every kind of address."""
        return [item.described() for item in resources.RESOURCES]

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents]:
        """What is at an address."""
        call = self._call(context)
        try:
            async with recorded("resources/read", call):
                return [await resources.read(call, str(uri))]
        except DebugServerError as error:
            raise as_mcp(error) from error

    def _call(self, context: Context[Any, Any] | None) -> Call:
        async def progress(seconds: float, told: str) -> None:
            if context is not None:
                await context.report_progress(seconds, None, told)

        request = context.request_context.request if context is not None else None
        try:
            caller = self._caller or caller_of(request)
        except DebugServerError as error:
            raise as_mcp(error) from error
        request_id = request_id_of(getattr(request, "scope", {}))
        return Call(service=self._service, caller=caller, progress=progress, request_id=request_id)


@cache
def _described() -> list[types.Tool]:
    """Cached, because creating the schemas takes a tenth of a second."""
    return [tool.described() for tool in TOOLS.values()]


def _key(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidInputError(f"{IDEMPOTENCY_KEY}={value!r:.64} must be a string")


async def _called(tool: Tool, call: Call, arguments: dict[str, Any]) -> m.Reply:
    given = dict(arguments)
    key = _key(given.pop(IDEMPOTENCY_KEY, None)) if tool.takes_key else None
    return await tool.run(replace(call, key=key), decoded(tool.request, given, of=tool.name))


def _result(reply: m.Reply) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text_of(reply)), *resources.links(reply)],
        structured_content=reply.model_dump(mode="json"),
    )
