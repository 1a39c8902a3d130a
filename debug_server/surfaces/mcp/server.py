"""The MCP server: finds the requested tool or resource, decodes, calls, encodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from mcp import types
from mcp.server import MCPServer, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from pydantic import AnyUrl

from debug_server import __version__
from debug_server import messages as m
from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.service import Caller, Service
from debug_server.surfaces.mcp import resources
from debug_server.surfaces.mcp.admission import request_id_of, toolsets_of
from debug_server.surfaces.mcp.calls import Call, as_mcp, caller_of, decoded, recorded
from debug_server.surfaces.mcp.refusal import REPLY_KEY, failed
from debug_server.surfaces.mcp.text import text_of
from debug_server.surfaces.mcp.tool_names import meant_tool
from debug_server.surfaces.mcp.tools import IDEMPOTENCY_KEY, TOOLS, Tool
from debug_server.surfaces.mcp.toolsets import DEFAULT, PARAMETER, Toolsets, listed

INSTRUCTIONS = """\
Runs commands in private workspaces of git repositories, and keeps every log.
One command: `run` with a repository. Several in one workspace: session_create, `run` with its session_id, session_diff,
session_close. To try a change, open a session with a `patch`.
Answers have a digest of the log, in which @N is a byte offset: read_log reads from there, or searches with grep.
A command that still runs when a call returns continues: wait_command or cancel_command."""


def build_mcp(service: Service, *, caller: Caller | None = None, toolsets: Toolsets = DEFAULT) -> MCPServer[Any]:
    """Create the server. ``caller`` and ``toolsets`` are those of a private stream; without a caller, each message must
    come over HTTP from an authenticated caller, and the address names the toolsets."""
    return _Server(service, caller, toolsets)


class _Server(MCPServer[Any]):
    """The SDK's server with our tables of tools and resources instead of its registries."""

    def __init__(self, service: Service, caller: Caller | None, toolsets: Toolsets) -> None:
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
        self._toolsets = toolsets

    async def _handle_list_tools(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools of the chosen toolsets that the caller has the scopes for; the SDK's own method knows no caller."""
        caller, toolsets = self._admitted(ctx.request)
        chosen = [tool.name for tool in TOOLS.values() if tool.toolset in toolsets and tool.is_allowed(caller)]
        return types.ListToolsResult(tools=[_described(name) for name in chosen])

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult:
        """One call of one tool."""
        call, toolsets = self._call(context)
        tool = TOOLS.get(name)
        try:
            async with recorded(f"tools/{name[:64]}", call):
                if tool is None:
                    raise InvalidInputError(f"there is no tool {name[:64]!r}: {_hint(name)}")
                if tool.toolset not in toolsets:
                    raise InvalidInputError(_not_enabled(tool, toolsets))
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
        call, _ = self._call(context)
        try:
            async with recorded("resources/read", call):
                return [await resources.read(call, str(uri))]
        except DebugServerError as error:
            raise as_mcp(error) from error

    def _call(self, context: Context[Any, Any] | None) -> tuple[Call, Toolsets]:
        async def progress(seconds: float, told: str) -> None:
            if context is not None:
                await context.report_progress(seconds, None, told)

        request = context.request_context.request if context is not None else None
        caller, toolsets = self._admitted(request)
        request_id = request_id_of(getattr(request, "scope", {}))
        return Call(service=self._service, caller=caller, progress=progress, request_id=request_id), toolsets

    def _admitted(self, request: Any) -> tuple[Caller, Toolsets]:
        try:
            caller = self._caller or caller_of(request)
        except DebugServerError as error:
            raise as_mcp(error) from error
        return caller, toolsets_of(getattr(request, "scope", {})) or self._toolsets


@cache
def _described(name: str) -> types.Tool:
    """Cached, because creating the schemas takes a tenth of a second."""
    return TOOLS[name].described()


def _hint(name: str) -> str:
    meant = meant_tool(name[:64])
    return f"did you mean {meant!r}?" if meant else "tools/list names them"


def _not_enabled(tool: Tool, toolsets: Toolsets) -> str:
    wanted = listed({*toolsets, tool.toolset})
    return (
        f"{tool.name} is a tool of the toolset {tool.toolset}, which this connection has not chosen: start"
        f" `debug-server mcp --toolsets {wanted}`, or add ?{PARAMETER}={wanted} to the address of the server"
    )


def _key(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidInputError(f"{IDEMPOTENCY_KEY}={value!r:.64} must be a string")


async def _called(tool: Tool, call: Call, arguments: dict[str, Any]) -> m.Reply:
    given = dict(arguments)
    key = _key(given.pop(IDEMPOTENCY_KEY, None)) if tool.takes_key else None
    return await tool.run(replace(call, key=key), decoded(tool.request, given, of=tool.name))


def _result(reply: m.Reply) -> types.CallToolResult:
    """The reply as text for the model, and in ``_meta`` for programs.

    It is no structured content: the common clients show a model that instead of the text, at twice the tokens.
    """
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text_of(reply)), *resources.links(reply)],
        _meta={REPLY_KEY: reply.model_dump(mode="json")},
    )
