"""The program ``debug-server``: each part is loaded by the command that needs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debug_server.surfaces.cli.dropped import send_dropped_again

if TYPE_CHECKING:
    from debug_server.app import Local


def open_local(**options: Any) -> Local:
    """Everything on this machine."""
    from debug_server.app import Local

    return Local.open(**options)


def serve(*, config: Path | None, log_level: str, **options: Any) -> int:
    """The one server."""
    from debug_server.server import ServeOptions
    from debug_server.server import serve as run

    with open_local(config=config, log_level=log_level) as local:
        return run(local, ServeOptions(**options))


def serve_gateway(*, host: str | None, port: int | None, config: Path | None, log_level: str, **options: Any) -> int:
    """The same server with the gateway alone, on the gateway's own address."""
    from debug_server.parts import GATEWAY
    from debug_server.server import ServeOptions
    from debug_server.server import serve as run

    # Whoever asks for the gateway by name need not ask a second time for its worker.
    environ = {"PROXY_USE_APP_SERVER": "true", **os.environ}
    with open_local(config=config, log_level=log_level, environ=environ) as local:
        place = local.gateway_config.value.access
        host, port = host or place.host, place.port if port is None else port
        parts = frozenset({GATEWAY})
        return run(local, ServeOptions(host=host, port=port, grpc_port=None, parts=parts, **options))


def mcp() -> int:
    """The Model Context Protocol over our own standard streams, with an engine of its own."""
    from debug_server.surfaces.mcp.stdio import run_stdio

    with open_local() as local:
        local.engine.start()
        try:
            run_stdio(local.service)
        finally:
            local.engine.stop()
    return 0


def mcp_bridge(base_url: str, token: str | None, *, verify_tls: bool, server_uid: int | None) -> int:
    """The same protocol, answered by a server elsewhere."""
    from debug_server.surfaces.mcp.bridge import run_bridge

    run_bridge(base_url, token, verify_tls=verify_tls, server_uid=server_uid)
    return 0


def main(name: str = "debug-server") -> None:
    """Entry point."""
    send_dropped_again()  # before the rest is loaded: that is when most of them would be dropped
    from debug_server.surfaces.cli.invocation import Programs
    from debug_server.surfaces.cli.main import run_cli

    programs = Programs(open_local=open_local, serve=serve, serve_gateway=serve_gateway, mcp=mcp, mcp_bridge=mcp_bridge)
    run_cli(programs, name=name)


def sashi() -> None:
    """The same program under the name that operators of boards know."""
    main("sashi")


if __name__ == "__main__":
    main()
