"""A server in a process of its own: `stdio` speaks over its streams, `http` prints its port and an admin's token."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys

import uvicorn
from starlette.applications import Starlette

from debug_server import messages as m
from debug_server.app import Local
from debug_server.service import LOCAL
from debug_server.surfaces.mcp.http import McpHttp
from debug_server.surfaces.mcp.stdio import run_stdio
from debug_server.surfaces.mcp.toolsets import ALL, parse_toolsets


async def serve_http(local: Local) -> None:
    """Until it is told to end."""
    http = McpHttp(local.service)
    app = Starlette(routes=[http.route()], lifespan=lambda _: http.running())
    listener = socket.create_server(("127.0.0.1", 0))
    # As the product's own: else the second part of every answer waits 40 ms for the acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    token = await local.service.tokens.create(LOCAL, m.CreateToken(name="tester", scopes=["admin"]))
    sys.stdout.write(json.dumps({"port": listener.getsockname()[1], "token": token.token}) + "\n")
    sys.stdout.flush()
    await uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on")).serve(sockets=[listener])


def main() -> None:
    """Everything below the working directory."""
    # uvicorn raises the signal again once it has shut down; the engine wants to be stopped after that.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Local.open() as local:
        local.engine.start()
        try:
            if sys.argv[1] == "stdio":
                run_stdio(local.service, toolsets=parse_toolsets(sys.argv[2] if len(sys.argv) > 2 else ALL))
            else:
                asyncio.run(serve_http(local))
        finally:
            local.engine.stop()


if __name__ == "__main__":
    main()
