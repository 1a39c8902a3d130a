"""How an error is told: the number of the one error table, the sentence, and data for programs."""

from __future__ import annotations

from typing import Any

from debug_server.errors import DebugServerError, UnavailableError
from debug_server.service import mapping_of


def told(error: DebugServerError) -> dict[str, Any]:
    """A JSON-RPC error object; ``data`` has the code, and whether and when to try again."""
    mapping = mapping_of(error)
    data: dict[str, Any] = {"code": error.code, "retryable": mapping.retryable}
    if isinstance(error, UnavailableError):
        data["retry_after"] = error.retry_after
    return {"code": mapping.mcp, "message": str(error), "data": data}
