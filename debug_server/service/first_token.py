"""The first token of a new server: without one nobody but its own user could use it."""

from __future__ import annotations

from debug_server.messages import ADMIN
from debug_server.store import MetadataStore

_NAME = "admin"


class FirstToken:
    """Made once, before anything is served."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def is_missing(self) -> bool:
        """Whether no token is good for anything."""
        return all(token.revoked_at is not None for token in self._store.tokens.page())

    def make(self) -> str:
        """A token that may do everything; its secret."""
        return self._store.tokens.create(_NAME, [ADMIN])[1]
