"""When tokens were last used: written beside the requests, never by them, and not at all while the store is away."""

from __future__ import annotations

import logging
import threading
import time

from debug_server.errors import DebugServerError
from debug_server.store import MetadataStore
from debug_server.store.tokens import USE_NOTED_EVERY

_LOG = logging.getLogger(__name__)


class TokenUses:
    """Collects uses; one thread at a time writes all that have come meanwhile in one commit."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._tried: dict[int, float] = {}  # by token, when it was last tried: a store that fails is left alone
        self._waiting: set[int] = set()
        self._writing = False

    def note(self, token_id: int) -> None:
        """The token is in use; returns at once."""
        now = time.monotonic()
        with self._lock:
            if now - self._tried.get(token_id, -USE_NOTED_EVERY) < USE_NOTED_EVERY:
                return
            self._tried[token_id] = now
            self._waiting.add(token_id)
            if self._writing:
                return
            self._writing = True
        try:
            threading.Thread(target=self._write, name="token-uses", daemon=True).start()
        except RuntimeError:  # no thread can be had: the next use tries again
            with self._lock:
                self._writing = False

    def _write(self) -> None:
        while True:
            with self._lock:
                tokens, self._waiting = self._waiting, set()
                if not tokens:
                    self._writing = False
                    return
            try:
                self._store.note_uses(tokens)
            except DebugServerError as error:
                _LOG.info("token_use_not_noted", extra={"tokens": len(tokens), "error": str(error)})
