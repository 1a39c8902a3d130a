"""MCP over the stdin and stdout of a process that its client started."""

from __future__ import annotations

import asyncio

from debug_server.service import LOCAL, Caller, Service
from debug_server.surfaces.mcp.server import build_mcp


async def serve_stdio(service: Service, *, caller: Caller = LOCAL) -> None:
    """Serve the client over stdin and stdout until stdin ends."""
    await build_mcp(service, caller=caller).run_stdio_async()


def run_stdio(service: Service, *, caller: Caller = LOCAL) -> None:
    """The same as a blocking call."""
    asyncio.run(serve_stdio(service, caller=caller))
