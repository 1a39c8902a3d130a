"""The ASGI application under the name that deployments know, ``debug_server.api.main:app``."""
