"""The keyed_requests table: replies to requests with an idempotency key.

    begun (owner, no reply) --> answered (reply)      a command and its request in one commit: answered at once
        |        ^
        |        +-- taken over when its owner is dead
        +--> dropped when it failed: nothing was done, so it may be repeated

Replies are sealed: they may contain the secret of a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from debug_server.errors import ConflictError
from debug_server.model import Command, RequestKey
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import moment
from debug_server.store.sealing import Sealer
from debug_server.store.table import Table, require_row

KEPT_SECONDS = 24 * 3600.0

_COLUMNS = "fingerprint, owner, reply, created_at"
_OF_KEY = "caller = ? AND request_key = ?"
# A page at a time: after a pause there may be many, and other writers wait meanwhile.
_DROP_OLD = (
    "DELETE FROM keyed_requests WHERE (caller, request_key) IN"
    " (SELECT caller, request_key FROM keyed_requests WHERE created_at < ? ORDER BY created_at LIMIT 100)"
)
_DROP_OLD_OF_KEY = f"DELETE FROM keyed_requests WHERE {_OF_KEY} AND created_at < ?"
_BEGIN = (
    "INSERT INTO keyed_requests (caller, request_key, fingerprint, owner, created_at) VALUES (?, ?, ?, ?, ?)"
    f" ON CONFLICT (caller, request_key) DO NOTHING RETURNING {_COLUMNS}"
)
_ANSWER = f"UPDATE keyed_requests SET reply = ? WHERE {_OF_KEY} AND owner = ? AND reply IS NULL"


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

    def is_known(self, request: RequestKey) -> bool:
        """Whether there is a request with this key, which may be of another request or long ago."""
        return self._one(f"SELECT 1 FROM keyed_requests WHERE {_OF_KEY}", (request.caller, request.key)) is not None

    def begin(self, caller: str, key: str, *, fingerprint: str, owner: str) -> KeyedRequest:
        """Begin a request, or find the earlier one with this key; a page of rows older than a day is deleted."""
        with self._database.write() as transaction:
            now = self._now()
            row = _begin(transaction, now, (caller, key, fingerprint, owner))
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
        with self._database.write() as transaction:
            _answer(transaction, self._sealer, (caller, key, owner), reply)

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


def begin_with(transaction: Transaction, now: float, request: RequestKey) -> None:
    """Begin a request in the transaction that does it, before its other statements; ConflictError if it is known."""
    if _begin(transaction, now, (request.caller, request.key, request.fingerprint, request.owner)) is None:
        raise ConflictError(f"the request with the idempotency key {request.key!r} is known already: send it again")


def answer_with(transaction: Transaction, sealer: Sealer, request: RequestKey, command: Command) -> None:
    """Answer it in the same transaction."""
    _answer(transaction, sealer, (request.caller, request.key, request.owner), request.reply(command))


def _begin(transaction: Transaction, now: float, values: tuple[str, str, str, str]) -> Row | None:
    """The new row; None if there is one that is not too old."""
    caller, key, *_ = values
    transaction.run(_DROP_OLD, (now - KEPT_SECONDS,))
    transaction.run(_DROP_OLD_OF_KEY, (caller, key, now - KEPT_SECONDS))
    return transaction.one(_BEGIN, (*values, now))


def _answer(transaction: Transaction, sealer: Sealer, request: tuple[str, str, str], reply: str) -> None:
    caller, key, _ = request
    sealed = sealer.seal({"reply": reply}, _seal_context(caller, key))
    transaction.run(_ANSWER, (sealed, *request))


def _seal_context(caller: str, key: str) -> str:
    return f"request {key} of {caller}"
