"""Ready by handshake: a client protocol on the worker's stdin and stdout, which keeps the channel afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debug_server.workers.interface import WorkerChannel
from debug_server.workers.readiness.probe import Probe, ProbeFailedError
from debug_server.workers.spec import HandshakeReadiness


class HandshakeProbe(Probe):
    """Ready by a handshake; its conversation reads stdout and answers the watchdog."""

    async def listen(self, channel: WorkerChannel) -> None:
        """Does nothing: the conversation reads stdout."""

    async def ready(self, channel: WorkerChannel) -> Mapping[str, Any]:
        """Shake hands."""
        readiness = self._context.spec.readiness
        assert isinstance(readiness, HandshakeReadiness)
        handshake = self._context.handshakes.get(readiness.protocol)
        if handshake is None:
            known = ", ".join(sorted(self._context.handshakes)) or "none"
            raise ProbeFailedError(f"unknown protocol {readiness.protocol!r}; supported protocols: {known}")
        self.conversation = await handshake(channel)
        return self.conversation.details

    async def check(self) -> None:
        """Ping over the conversation."""
        if self.conversation is not None:
            await self.conversation.ping()
