"""The Model Context Protocol surface: the operations as tools, logs and artifacts as resources, over stdio and HTTP.

Imported by ``app`` and its entry points only. ``build_mcp`` makes the server; ``McpHttp`` serves it at a path of an
ASGI application, ``run_stdio`` over this process's standard streams.
"""

from debug_server.surfaces.mcp.server import build_mcp
from debug_server.surfaces.mcp.tools import EXCEPTIONS, TOOLS
from debug_server.surfaces.mcp.transports import McpHttp, run_stdio, serve_stdio

__all__ = ["EXCEPTIONS", "TOOLS", "McpHttp", "build_mcp", "run_stdio", "serve_stdio"]
