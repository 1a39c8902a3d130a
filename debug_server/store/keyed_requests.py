"""The keyed_requests table: replies to requests with an idempotency key.

    begun (owner, no reply) --> answered (reply)
        |        ^
        |        +-- taken over when its owner is dead
        +--> dropped when it failed: nothing was done, so it may be repeated

Replies are sealed: they may contain the secret of a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from debug_server.store.connection import Row
from debug_server.store.encoding import moment
from debug_server.store.table import Table, require_row

KEPT_SECONDS = 24 * 3600.0

_COLUMNS = "fingerprint, owner, reply, created_at"
_OF_KEY = "caller = ? AND request_key = ?"
_BEGIN = (
    "INSERT INTO keyed_requests (caller, request_key, fingerprint, owner, created_at) VALUES (?, ?, ?, ?, ?)"
    f" ON CONFLICT (caller, request_key) DO NOTHING RETURNING {_COLUMNS}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request with an idempotency key."""

    fingerprint: str  # of the operation and its arguments
    owner: str  # the process that answers it
    reply: str | None  # None until it is answered
    created_at: datetime
    first: bool  # whether this call created the row


class KeyedRequests(Table):
    """Beginning, answering and dropping keyed requests."""

    def begin(self, caller: str, key: str, *, fingerprint: str, owner: str) -> KeyedRequest:
        """Begin a request, or find the earlier one with this key; rows older than a day are deleted."""
        with self._database.write() as transaction:
            now = self._now()
            transaction.run("DELETE FROM keyed_requests WHERE created_at < ?", (now - KEPT_SECONDS,))
            row = transaction.one(_BEGIN, (caller, key, fingerprint, owner, now))
            first = row is not None
            if row is None:
                row = transaction.one(f"SELECT {_COLUMNS} FROM keyed_requests WHERE {_OF_KEY}", (caller, key))
        return self._request(require_row(row, "request with the key", key), _seal_context(caller, key), first=first)

    def take_over(self, caller: str, key: str, *, owner: str, new_owner: str) -> bool:
        """Become the owner in place of a dead one; False if another process did so first."""
        sql = f"UPDATE keyed_requests SET owner = ? WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            return transaction.run(sql, (new_owner, caller, key, owner)) == 1

    def answer(self, caller: str, key: str, *, owner: str, reply: str) -> None:
        """Store the reply for repetitions."""
        sealed = self._sealer.seal({"reply": reply}, _seal_context(caller, key))
        sql = f"UPDATE keyed_requests SET reply = ? WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            transaction.run(sql, (sealed, caller, key, owner))

    def drop(self, caller: str, key: str, *, owner: str) -> None:
        """Delete a request that failed."""
        sql = f"DELETE FROM keyed_requests WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            transaction.run(sql, (caller, key, owner))

    def _request(self, row: Row, context: str, *, first: bool) -> KeyedRequest:
        fingerprint, owner, sealed, created_at = row
        reply = None if sealed is None else self._sealer.unseal(bytes(sealed), context)["reply"]
        return KeyedRequest(
            fingerprint=fingerprint, owner=owner, reply=reply, created_at=moment(created_at), first=first
        )


def _seal_context(caller: str, key: str) -> str:
    return f"request {key} of {caller}"
