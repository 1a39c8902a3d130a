"""The programs of the command lines; each loads its modules when it is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.app.local import Local


def open_local(*, metrics: bool = False, **options: Any) -> Local:
    """The components of this machine; ``metrics`` if the process serves metrics."""
    from debug_server.app.local import Local

    return Local.open(metrics=metrics, **options)


def serve(*, config: Path | None, log_level: str, **options: Any) -> int:
    """Run the server."""
    from debug_server.app.server import ServeOptions
    from debug_server.app.server import serve as run

    with open_local(config=config, log_level=log_level, metrics=True) as local:
        return run(local, ServeOptions(**options))


def serve_gateway(*, host: str | None, port: int | None, config: Path | None, log_level: str, **options: Any) -> int:
    """Run the server with only the gateway, on the gateway's address."""
    from debug_server.app.parts import GATEWAY
    from debug_server.app.server import ServeOptions
    from debug_server.app.server import serve as run

    # `gateway serve` implies that its worker is enabled.
    environ = {"PROXY_USE_APP_SERVER": "true", **os.environ}
    with open_local(config=config, log_level=log_level, environ=environ, metrics=True) as local:
        place = local.gateway_config.value.access
        host, port = host or place.host, place.port if port is None else port
        parts = frozenset({GATEWAY})
        return run(local, ServeOptions(host=host, port=port, grpc_port=None, parts=parts, **options))


def mcp(toolsets: str) -> int:
    """Serve MCP over stdin and stdout, with an engine in this process."""
    from debug_server.surfaces.mcp.stdio import run_stdio
    from debug_server.surfaces.mcp.toolsets import parse_toolsets

    chosen = parse_toolsets(toolsets)
    with open_local() as local:
        local.service.queue.start()
        try:
            run_stdio(local.service, toolsets=chosen)
        finally:
            local.service.queue.stop()
    return 0


def mcp_bridge(base_url: str, token: str | None, *, verify_tls: bool, server_uid: int | None, toolsets: str) -> int:
    """Serve MCP over stdin and stdout by forwarding to a server."""
    from debug_server.surfaces.mcp.bridge import run_bridge
    from debug_server.surfaces.mcp.toolsets import parse_toolsets

    run_bridge(base_url, token, verify_tls=verify_tls, server_uid=server_uid, toolsets=parse_toolsets(toolsets))
    return 0


def run_session_commands(session_id: str, *, add: str | None, **options: Any) -> int:
    """Run a session's waiting commands in order, in this process."""
    from debug_server.surfaces.cli import supervisor

    with open_local(**options) as local:
        return supervisor.run_session_commands(local.foreground, session_id, add=add)


def print_plan(text: str, *, session_id: str | None, **options: Any) -> int:
    """Print the plan of a shell command line without running it."""
    from debug_server.surfaces.cli import supervisor

    with open_local(**options) as local:
        return supervisor.print_plan(local.dry_runs.plan(text, session_id=session_id))


def command_line(name: str) -> None:
    """Run the program ``debug-server``; ``name`` is the name in its messages."""
    from debug_server.surfaces.cli.invocation import Programs
    from debug_server.surfaces.cli.main import run_cli

    programs = Programs(open_local=open_local, serve=serve, serve_gateway=serve_gateway, mcp=mcp, mcp_bridge=mcp_bridge)
    run_cli(programs, name=name)
