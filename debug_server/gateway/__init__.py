"""The OpenAI-compatible API over a supervised ``codex app-server``.

Imported by the composition root; imports workers, service and what is below them, and no other surface.
"""

from debug_server.gateway.access import refuse_insecure
from debug_server.gateway.wiring import gateway_part

__all__ = ["gateway_part", "refuse_insecure"]
