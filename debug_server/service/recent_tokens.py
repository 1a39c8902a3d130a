"""Which tokens were recognised lately: their holders' requests need not wait among those of unidentified callers."""

from __future__ import annotations

from hashlib import sha256

_REMEMBERED = 4096


class RecentTokens:
    """Digests of the tokens; only for precedence, never in place of the store."""

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def __contains__(self, secret: object) -> bool:
        return isinstance(secret, str) and _digest(secret) in self._digests

    def add(self, secret: str) -> None:
        """The token was recognised."""
        if len(self._digests) >= _REMEMBERED:
            del self._digests[next(iter(self._digests))]
        self._digests[_digest(secret)] = None

    def discard(self, secret: str) -> None:
        """The token is unknown, has expired or was revoked."""
        self._digests.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "surrogateescape")).digest()
