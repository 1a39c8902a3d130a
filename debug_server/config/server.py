"""The settings of the server's connections, as ``[server]`` in ``config/runner.toml`` holds them."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.config.declare import setting
from debug_server.config.kinds import number, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """[server]: the number of connections, and timeouts of each."""

    max_connections: int | None = setting(
        "Maximum number of connections (HTTP, WebSocket and gRPC together). Default: the limit of open files, "
        "less a reserve.",
        whole(minimum=8),
        default=None,
    )
    head_timeout: float = setting(
        "Seconds for a request's head to arrive, from the connection or its first byte.", number(), default=20.0
    )
    body_timeout: float = setting(
        "Maximum pause in seconds while a request's body arrives; its average rate must be at least 1 KiB/s.",
        number(),
        default=30.0,
    )
    keep_alive: float = setting(
        "Seconds that a connection may stay open without a request.",
        number(),
        default=75.0,  # longer than most clients keep one, so that the client closes it and not we during a request
    )
    unidentified_per_second: float = setting(
        "Maximum HTTP requests per second from all callers without a token together; further requests wait.",
        number(),
        default=250.0,
    )
    workspaces_per_token: int | None = setting(
        "Maximum number of workspaces for the open sessions of one token; default: half of workspaces.max_worktrees, "
        "else 64. It does not apply to admin tokens and to tokens with a quota of sessions.",
        whole(minimum=1),
        default=None,
    )
