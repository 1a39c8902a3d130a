"""MCP over the stdin and stdout of a process that its client started."""

from __future__ import annotations

import asyncio

from debug_server.service import LOCAL, Caller, Service
from debug_server.surfaces.mcp.server import build_mcp
from debug_server.surfaces.mcp.toolsets import DEFAULT, Toolsets


async def serve_stdio(service: Service, *, caller: Caller = LOCAL, toolsets: Toolsets = DEFAULT) -> None:
    """Serve the client over stdin and stdout until stdin ends."""
    await build_mcp(service, caller=caller, toolsets=toolsets).run_stdio_async()


def run_stdio(service: Service, *, caller: Caller = LOCAL, toolsets: Toolsets = DEFAULT) -> None:
    """The same as a blocking call."""
    asyncio.run(serve_stdio(service, caller=caller, toolsets=toolsets))
