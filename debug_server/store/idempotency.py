"""The keyed_requests table: what was answered to a request that carried an idempotency key.

    begun (owner, no reply) --> answered (reply)
        |        ^
        |        +-- taken over when its owner is dead
        +--> dropped when it failed: nothing was done, so a repetition may try

Replies are sealed: one may hold a token's secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from debug_server.store.connection import Row
from debug_server.store.encoding import moment
from debug_server.store.table import Table, found

KEPT_SECONDS = 24 * 3600.0

_COLUMNS = "fingerprint, owner, reply, created_at"
_OF_KEY = "caller = ? AND request_key = ?"
_BEGIN = (
    "INSERT INTO keyed_requests (caller, request_key, fingerprint, owner, created_at) VALUES (?, ?, ?, ?, ?)"
    f" ON CONFLICT (caller, request_key) DO NOTHING RETURNING {_COLUMNS}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request that was seen under its key."""

    fingerprint: str  # of the operation and its arguments
    owner: str  # the process that answers it
    reply: str | None  # None until it is answered
    created_at: datetime
    first: bool  # whether this call began it


class KeyedRequests(Table):
    """Beginning, answering and dropping requests under a key."""

    def begin(self, caller: str, key: str, *, fingerprint: str, owner: str) -> KeyedRequest:
        """Begin a request, or find the one that was begun before; those of yesterday are forgotten."""
        with self._database.write() as transaction:
            now = self._now()
            transaction.run("DELETE FROM keyed_requests WHERE created_at < ?", (now - KEPT_SECONDS,))
            row = transaction.one(_BEGIN, (caller, key, fingerprint, owner, now))
            first = row is not None
            if row is None:
                row = transaction.one(f"SELECT {_COLUMNS} FROM keyed_requests WHERE {_OF_KEY}", (caller, key))
        return self._request(found(row, "request with the key", key), _place(caller, key), first=first)

    def take_over(self, caller: str, key: str, *, owner: str, new_owner: str) -> bool:
        """Answer in a dead owner's stead; False if another did so first."""
        sql = f"UPDATE keyed_requests SET owner = ? WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            return transaction.run(sql, (new_owner, caller, key, owner)) == 1

    def answer(self, caller: str, key: str, *, owner: str, reply: str) -> None:
        """Keep the reply for whoever asks again."""
        sealed = self._sealer.seal({"reply": reply}, _place(caller, key))
        sql = f"UPDATE keyed_requests SET reply = ? WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            transaction.run(sql, (sealed, caller, key, owner))

    def drop(self, caller: str, key: str, *, owner: str) -> None:
        """Forget a request that failed."""
        sql = f"DELETE FROM keyed_requests WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"
        with self._database.write() as transaction:
            transaction.run(sql, (caller, key, owner))

    def _request(self, row: Row, place: str, *, first: bool) -> KeyedRequest:
        fingerprint, owner, sealed, created_at = row
        reply = None if sealed is None else self._sealer.unseal(bytes(sealed), place)["reply"]
        return KeyedRequest(
            fingerprint=fingerprint, owner=owner, reply=reply, created_at=moment(created_at), first=first
        )


def _place(caller: str, key: str) -> str:
    return f"request {key} of {caller}"
