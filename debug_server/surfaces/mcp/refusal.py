"""How an error is told: of a tool in its result, for the model to read; of anything else as the protocol's error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import mapping_of

if TYPE_CHECKING:
    from mcp.types import CallToolResult

ERROR_KEY = "debug-server/error"  # in a failed result's _meta


def told(error: DebugServerError) -> dict[str, Any]:
    """A JSON-RPC error object; ``data`` has the code, and whether and when to try again."""
    return {"code": mapping_of(error).mcp, "message": str(error), "data": _data(error)}


def failed(error: DebugServerError) -> CallToolResult:
    """A tool's result that says so: the sentence and the code for the model, the same in ``_meta`` for programs.

    Not as structured content: that is bound to the tool's output schema, and clients check it, also in a failure.
    """
    from mcp.types import CallToolResult, TextContent

    data = _data(error)
    facts = ", ".join(f"{name}: {str(value).lower()}" for name, value in data.items())
    return CallToolResult(
        content=[TextContent(type="text", text=f"{error}\n[{facts}]")],
        is_error=True,
        _meta={ERROR_KEY: {**data, "message": str(error)}},
    )


def _data(error: DebugServerError) -> dict[str, Any]:
    data: dict[str, Any] = {"code": error.code, "retryable": mapping_of(error).retryable}
    if isinstance(error, UnavailableError):
        data["retry_after"] = error.retry_after
    return data
