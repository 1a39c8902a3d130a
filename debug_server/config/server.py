"""The settings of the server's connections, as ``[server]`` in ``config/runner.toml`` holds them."""

from __future__ import annotations

from dataclasses import dataclass

from debug_server.config.declare import setting
from debug_server.config.kinds import number, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """[server]: what one connection may take, and how many there may be."""

    max_connections: int | None = setting(
        "Connections at the same time, HTTP, WebSocket and gRPC together; left out: as many as the limit of open "
        "files allows with a reserve for everything else.",
        whole(least=8),
        default=None,
    )
    head_timeout: float = setting(
        "Seconds for the head of a request to arrive, from the connection or the first byte on.", number(), default=20.0
    )
    body_timeout: float = setting(
        "Seconds that a request's body may pause; on average it must arrive at 1 KiB a second or faster.",
        number(),
        default=30.0,
    )
    keep_alive: float = setting(
        "Seconds that a connection may stay open without a request.",
        number(),
        default=75.0,  # longer than most clients keep one: theirs to close, not ours while they send
    )
    strangers_per_second: float = setting(
        "HTTP requests that callers without a token may begin in a second, all of them together; more wait.",
        number(),
        default=250.0,
    )
    workspaces_per_token: int | None = setting(
        "Workspaces that the open sessions of a token may have, unless it is an admin's or has a quota of sessions; "
        "left out: half of workspaces.max_worktrees.",
        whole(least=1),
        default=None,
    )
