"""The HTTP surface: REST, WebSocket and server-sent events over the verbs of the service.

Imported at ``app`` level only; imports ``service`` and nothing below it.
"""

from debug_server.surfaces.http.app import HttpApp, HttpSettings, create_http_app

__all__ = ["HttpApp", "HttpSettings", "create_http_app"]
