"""The Model Context Protocol surface: the operations as tools, logs and artifacts as resources, over stdio and HTTP.

Imported by ``app`` and its entry points only: ``http.McpHttp`` serves it at a path of an ASGI application,
``stdio.run_stdio`` over a process's standard streams, ``server.build_mcp`` is what both serve. Nothing is exported from
here, so that a server imports the SDK (half a second) for the first client, not when it starts.
"""
