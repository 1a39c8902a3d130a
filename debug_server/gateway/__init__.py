"""The OpenAI-compatible API over a supervised ``codex app-server``.

Imported by ``parts`` and the server. It is a surface: it calls the service and uses the public names of ``workers``.
"""

from debug_server.gateway.access import refuse_insecure
from debug_server.gateway.part import GatewayPart

__all__ = ["GatewayPart", "refuse_insecure"]
