"""Creates the first token of a new server: without one, only the server's own user could use it."""

from __future__ import annotations

from debug_server.messages import ADMIN
from debug_server.store import MetadataStore

_NAME = "admin"


class FirstToken:
    """Creates the admin token when a server starts that has no token, or only revoked ones."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def is_missing(self) -> bool:
        """Whether every token was revoked, or there is none; expired tokens count as present."""
        return all(token.revoked_at is not None for token in self._store.tokens.page())

    def create(self) -> str:
        """Create an admin token; returns its secret."""
        return self._store.tokens.create(_NAME, [ADMIN])[1]
