"""Errors over MCP: a tool's error is in its result, for the model to read; any other is an error of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from debug_server.errors import DebugServerError, NotFoundError, UnavailableError
from debug_server.service import mapping_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult

# In a result's _meta.
ERROR_KEY = "debug-server/error"
REPLY_KEY = "debug-server/reply"
_LISTS = {"command": "find_commands", "repository": "repository_list", "session": "session_list"}


def told(error: DebugServerError) -> dict[str, Any]:
    """A JSON-RPC error object; ``data`` has the code, and whether and when to retry."""
    return {"code": mapping_of(error).mcp, "message": str(error), "data": _data(error)}


def failed(error: DebugServerError) -> CallToolResult:
    """A failed tool's result: message and code as text for the model, and in ``_meta`` for programs."""
    from mcp.types import CallToolResult, TextContent

    data = _data(error)
    facts = ", ".join(f"{name}: {str(value).lower()}" for name, value in data.items())
    return CallToolResult(
        content=[TextContent(type="text", text=f"{error}{_where_to_look(error)}\n[{facts}]")],
        is_error=True,
        _meta={ERROR_KEY: {**data, "message": str(error)}},
    )


def _where_to_look(error: DebugServerError) -> str:
    """The tool that lists the rows of which the named one was not found."""
    tool = _LISTS.get(error.what or "") if isinstance(error, NotFoundError) else None
    if tool is None:
        return ""
    return f"{'' if str(error).endswith('?') else ':'} {tool} lists those that you may see"


def _data(error: DebugServerError) -> dict[str, Any]:
    data: dict[str, Any] = {"code": error.code, "retryable": mapping_of(error).retryable}
    if isinstance(error, UnavailableError):
        data["retry_after"] = error.retry_after
    return data
