"""The tokens table: a secret is shown once and stored only as a hash."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

from debug_server.errors import InvalidInputError, StoreUnavailableError
from debug_server.model import Token
from debug_server.store.connection import Row
from debug_server.store.encoding import (
    decode,
    encode,
    mapping_from,
    mapping_text,
    moment,
    optional_epoch,
    optional_moment,
)
from debug_server.store.table import ALL_ROWS, Table, keyset, require_row

SECRET_BYTES = 32
# ``last_used_at`` is only informative; writing it for every request would cost more than the request.
USE_RECORD_INTERVAL = 60.0

_COLUMNS = "id, name, scopes, expires_at, revoked_at, last_used_at, quotas, created_at"
_INSERT = (
    "INSERT INTO tokens (name, secret_hash, scopes, expires_at, quotas, created_at)"
    f" VALUES (?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}"
)


class Tokens(Table):
    """Making, checking and revoking access tokens."""

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        expires_at: datetime | None = None,
        quotas: Mapping[str, Any] | None = None,
    ) -> tuple[Token, str]:
        """A new token and its secret, which cannot be read again."""
        if not name or isinstance(scopes, str) or not all(isinstance(scope, str) and scope for scope in scopes):
            raise InvalidInputError(f"token {name!r} with scopes {scopes!r}: give a name and a list of scope names")
        secret = secrets.token_urlsafe(SECRET_BYTES)
        quota_text = mapping_text(quotas, what="token quotas")
        values = (name, _digest(secret), encode(list(scopes)), optional_epoch(expires_at), quota_text)
        with self._database.write() as transaction:
            row = transaction.one(_INSERT, (*values, self._now()))
        return _token(require_row(row, "token", name)), secret

    def authenticate(self, secret: str) -> Token | None:
        """The token of a secret, unless it has expired or was revoked; records its use if the store can be written."""
        token = self.find(secret)
        if token is not None and self.should_record_use(token):
            with contextlib.suppress(StoreUnavailableError):
                self.record_uses([token.id])
        return token

    def find(self, secret: str) -> Token | None:
        """The same without recording the use."""
        digest = _digest(secret)
        row = self._one(f"SELECT {_COLUMNS}, secret_hash FROM tokens WHERE secret_hash = ?", (digest,))
        if row is None or not hmac.compare_digest(row[-1], digest):
            return None
        expires_at, revoked_at = row[3], row[4]
        if revoked_at is not None or (expires_at is not None and expires_at <= self._now()):
            return None
        return _token(row)

    def should_record_use(self, token: Token) -> bool:
        """Whether ``last_used_at`` should be updated."""
        return token.last_used_at is None or self._now() - token.last_used_at.timestamp() >= USE_RECORD_INTERVAL

    def record_uses(self, token_ids: Iterable[int]) -> None:
        """Set ``last_used_at`` of the tokens to now."""
        with self._database.write() as transaction:
            now = self._now()
            for token_id in token_ids:
                transaction.run("UPDATE tokens SET last_used_at = ? WHERE id = ?", (now, token_id))

    def get(self, token_id: int) -> Token:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", (token_id,))
        return _token(require_row(row, "token", token_id))

    def page(self, *, after: int = 0, limit: int = ALL_ROWS, newest: bool = False) -> list[Token]:
        """Tokens after an id, also revoked ones, in that order or newest first."""
        (term, value), order = keyset("id", after, newest=newest)
        rows = self._all(f"SELECT {_COLUMNS} FROM tokens WHERE {term} {order} LIMIT ?", (value, limit))
        return [_token(row) for row in rows]

    def revoke(self, token_id: int) -> Token:
        """Revoke a token; a second call changes nothing."""
        sql = f"UPDATE tokens SET revoked_at = COALESCE(revoked_at, ?) WHERE id = ? RETURNING {_COLUMNS}"
        with self._database.write() as transaction:
            row = transaction.one(sql, (self._now(), token_id))
        return _token(require_row(row, "token", token_id))


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=256)  # read for every request, and seldom changed
def _token(row: Row) -> Token:
    return Token(
        id=row[0],
        name=row[1],
        scopes=tuple(decode(row[2])),
        expires_at=optional_moment(row[3]),
        revoked_at=optional_moment(row[4]),
        last_used_at=optional_moment(row[5]),
        quotas=mapping_from(row[6]),
        created_at=moment(row[7]),
    )
