"""The smallest application of the same framework on the same server: what a request costs at least."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI

from debug_server.server import ServeOptions, uvicorn_config

app = FastAPI()


@app.get("/commands/{command_id}")
async def get_command(command_id: int) -> dict[str, int]:
    """One field."""
    return {"id": command_id}


def main() -> None:
    """Serve on a free port, which is printed."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sys.stdout.write(f"serving on http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn_config(app, ServeOptions(port=0))).run(sockets=[listener])


if __name__ == "__main__":
    main()
