"""The OpenAI-compatible API over a supervised ``codex app-server``.

Imported by the composition root; imports workers, service and what is below them, and no other surface.
"""

from debug_server.gateway.access import refuse_insecure
from debug_server.gateway.part import GatewayPart, Surroundings

__all__ = ["GatewayPart", "Surroundings", "refuse_insecure"]
