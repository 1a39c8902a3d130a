"""The TCP peers whose caller has been identified, by a token or by the kernel."""

from __future__ import annotations

from collections.abc import Collection

Address = tuple[str, int]  # host and port


class IdentifiedPeers:
    """Addresses of identified peers. Used only for the limits of unidentified callers, never instead of a token."""

    def __init__(self) -> None:
        self._known: set[Address] = set()

    def __contains__(self, peer: Address | None) -> bool:
        return peer in self._known

    def add(self, peer: Address) -> None:
        """Mark a peer as identified."""
        self._known.add(peer)

    def forget_closed(self, connected: Collection[Address]) -> None:
        """Remove all peers that are not in ``connected``: another process may use their ports now."""
        self._known.intersection_update(connected)
