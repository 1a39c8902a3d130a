"""Maps every error code to its HTTP status, gRPC status, MCP code and exit status."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.errors import DebugServerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMapping:
    """The representations of one error code."""

    http: int
    grpc: str  # the name of a grpc.StatusCode
    mcp: int  # the JSON-RPC error code, if the error is not in a tool's result
    exit_status: int
    retryable: bool = False


_INVALID = ErrorMapping(http=422, grpc="INVALID_ARGUMENT", mcp=-32602, exit_status=2)
_INTERNAL = ErrorMapping(http=500, grpc="INTERNAL", mcp=-32603, exit_status=125)
_BUSY = ErrorMapping(http=429, grpc="RESOURCE_EXHAUSTED", mcp=-32001, exit_status=75, retryable=True)
_UNAVAILABLE = ErrorMapping(http=503, grpc="UNAVAILABLE", mcp=-32001, exit_status=75, retryable=True)
_CONFLICT = ErrorMapping(http=409, grpc="FAILED_PRECONDITION", mcp=-32002, exit_status=1)
_UNPROCESSABLE = ErrorMapping(http=422, grpc="FAILED_PRECONDITION", mcp=-32002, exit_status=125)

ERRORS: dict[str, ErrorMapping] = {
    "internal_error": _INTERNAL,
    "invalid_input": _INVALID,
    "invalid_configuration": _INVALID,
    "requirement_unmet": _UNPROCESSABLE,
    "unsupported_by_server": ErrorMapping(http=501, grpc="UNIMPLEMENTED", mcp=-32005, exit_status=1),
    "unauthorized": ErrorMapping(http=401, grpc="UNAUTHENTICATED", mcp=-32003, exit_status=77),
    "forbidden": ErrorMapping(http=403, grpc="PERMISSION_DENIED", mcp=-32003, exit_status=77),
    "metadata_error": _CONFLICT,
    "not_found": ErrorMapping(http=404, grpc="NOT_FOUND", mcp=-32004, exit_status=1),
    "conflict": _CONFLICT,
    "still_running": ErrorMapping(http=409, grpc="UNAVAILABLE", mcp=-32001, exit_status=75, retryable=True),
    "store_unavailable": _UNAVAILABLE,
    "queue_full": _BUSY,
    "quota_exceeded": _BUSY,
    "too_many_followers": _BUSY,
    "draining": _UNAVAILABLE,
    "unreachable": _UNAVAILABLE,
    "resources_exhausted": _UNAVAILABLE,
    "disk_full": ErrorMapping(http=507, grpc="RESOURCE_EXHAUSTED", mcp=-32001, exit_status=75, retryable=True),
    "worker_not_ready": _UNAVAILABLE,
    "worker_exited": _UNAVAILABLE,
    "worker_busy": _BUSY,
    "worker_request_timeout": ErrorMapping(
        http=504, grpc="DEADLINE_EXCEEDED", mcp=-32001, exit_status=75, retryable=True
    ),
    "handshake_failed": _UNAVAILABLE,
    "worker_error": _INTERNAL,
    "engine_busy": _CONFLICT,
    "keeper_error": _CONFLICT,
    "worktree_error": _UNPROCESSABLE,
    "unknown_commit": ErrorMapping(http=404, grpc="NOT_FOUND", mcp=-32004, exit_status=1),
    "remote_unreachable": ErrorMapping(http=502, grpc="UNAVAILABLE", mcp=-32001, exit_status=75, retryable=True),
    "capacity_exhausted": _BUSY,
    "lease_lost": _CONFLICT,
    "patch_failed": _UNPROCESSABLE,
    "env_failed": _UNPROCESSABLE,
    "spawn_failed": _UNPROCESSABLE,
    "command_failed": _UNPROCESSABLE,
    "debugger_unavailable": ErrorMapping(http=501, grpc="UNIMPLEMENTED", mcp=-32005, exit_status=1),
    "range_not_satisfiable": ErrorMapping(http=416, grpc="OUT_OF_RANGE", mcp=-32602, exit_status=2),
    "unsupported_media_type": ErrorMapping(http=415, grpc="INVALID_ARGUMENT", mcp=-32602, exit_status=2),
    "payload_too_large": ErrorMapping(http=413, grpc="RESOURCE_EXHAUSTED", mcp=-32602, exit_status=2),
}


def mapping_of(error: DebugServerError) -> ErrorMapping:
    """The mapping of ``error``."""
    return ERRORS[error.code]
