"""Which connections of a port have shown whose they are, by a token or by the kernel's word."""

from __future__ import annotations

from collections.abc import Collection

Address = tuple[str, int]  # host and port


class KnownPeers:
    """The peers' addresses; only for what strangers are refused, never in place of a token."""

    def __init__(self) -> None:
        self._known: set[Address] = set()

    def __contains__(self, peer: Address | None) -> bool:
        return peer in self._known

    def add(self, peer: Address) -> None:
        """This connection has shown whose it is."""
        self._known.add(peer)

    def keep(self, connected: Collection[Address]) -> None:
        """Forget those that are gone: their ports may be anybody's by now."""
        self._known.intersection_update(connected)
