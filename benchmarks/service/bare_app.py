"""The smallest application of the same framework on the same server: what a request costs at least."""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from debug_server.app.server import ServeOptions, uvicorn_config


async def get_command(request: Request) -> JSONResponse:
    """One field."""
    return JSONResponse({"id": request.path_params["command_id"]})


app: Any = Starlette(routes=[Route("/commands/{command_id:int}", get_command)])


def main() -> None:
    """Serve on a free port, which is printed."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sys.stdout.write(f"serving on http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn_config(app, ServeOptions(port=0))).run(sockets=[listener])


if __name__ == "__main__":
    main()
