"""The sessions table.

    pending --> running --> completed | failed | cancelled
       |                          ^
       +--------------------------+

A terminal status is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from debug_server.errors import ConflictError
from debug_server.model import Notice, Session, SessionStatus
from debug_server.store import claims, event_log
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import (
    epoch,
    mapping_from,
    mapping_text,
    moment,
    optional_epoch,
    optional_mapping_text,
    optional_moment,
)
from debug_server.store.sealing import Sealer
from debug_server.store.table import Table, filters, found, require

_COLUMNS = (
    "id, repository_id, worktree_id, status, commit_sha, patch_hash, requested_by, owner_token_id, expires_at,"
    " metadata, created_at, updated_at"
)
_GET = f"SELECT {_COLUMNS} FROM sessions WHERE id = ?"
_INSERT = (
    "INSERT INTO sessions (repository_id, worktree_id, status, commit_sha, patch_hash, requested_by, owner_token_id,"
    f" expires_at, metadata, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}"
)
_UPDATE = (
    "UPDATE sessions SET status = COALESCE(?, status), worktree_id = COALESCE(?, worktree_id),"
    " commit_sha = COALESCE(?, commit_sha), patch_hash = COALESCE(?, patch_hash),"
    " expires_at = COALESCE(?, expires_at), metadata = COALESCE(?, metadata), updated_at = ? WHERE id = ?"
)
_OPEN = (SessionStatus.PENDING, SessionStatus.RUNNING)
_LIVE = "status IN ('pending', 'running')"
# Which rows may take a status: the guard is part of the update, so that no second writer slips in between.
_GUARDS = {
    None: "1 = 1",
    SessionStatus.PENDING: "status = 'pending'",
    SessionStatus.RUNNING: _LIVE,
    SessionStatus.COMPLETED: _LIVE,
    SessionStatus.FAILED: _LIVE,
    SessionStatus.CANCELLED: _LIVE,
}


class Sessions(Table):
    """Opening, finding and ending sessions."""

    def create(
        self,
        *,
        repository_id: int | None = None,
        commit_sha: str | None = None,
        worktree_id: int | None = None,
        patch_hash: str | None = None,
        requested_by: str | None = None,
        owner_token_id: int | None = None,
        expires_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Open a pending session; event ``session.created``."""
        text = mapping_text(metadata, what="session metadata")
        pending = SessionStatus.PENDING.value
        values = (repository_id, worktree_id, pending, commit_sha, patch_hash, requested_by, owner_token_id)
        with self._database.write() as transaction:
            require(transaction, "repositories", "repository", repository_id)
            require(transaction, "worktrees", "worktree", worktree_id)
            require(transaction, "tokens", "token", owner_token_id)
            session = insert(transaction, self._now(), (*values, optional_epoch(expires_at)), text)
        self._announce(Notice("session.created", session.id))
        return session

    def get(self, session_id: int) -> Session:
        """The row, or NotFoundError."""
        return _session(found(self._one(_GET, (session_id,)), "session", session_id))

    def page(
        self,
        *,
        status: SessionStatus | None = None,
        repository_id: int | None = None,
        owner_token_id: int | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Session]:
        """Sessions with an id above ``after``, oldest first."""
        terms, params = filters(
            ("id > ?", after),
            ("status = ?", status and status.value),
            ("repository_id = ?", repository_id),
            ("owner_token_id = ?", owner_token_id),
        )
        rows = self._all(f"SELECT {_COLUMNS} FROM sessions WHERE {terms} ORDER BY id LIMIT ?", (*params, limit))
        return [_session(row) for row in rows]

    def update(
        self,
        session_id: int,
        *,
        status: SessionStatus | None = None,
        worktree_id: int | None = None,
        commit_sha: str | None = None,
        patch_hash: str | None = None,
        expires_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        merge: Mapping[str, Any] | None = None,
    ) -> Session:
        """Change what is given; a status that cannot follow is a ConflictError; event ``session.<status>``.

        ``metadata`` replaces all of it, ``merge`` only the keys that it names: several writers lose nothing.
        """
        text = optional_mapping_text(metadata, what="session metadata")
        with self._database.write() as transaction:
            if merge is not None:
                text = _merged(transaction, session_id, merge)
            values = (status and status.value, worktree_id, commit_sha, patch_hash, optional_epoch(expires_at), text)
            require(transaction, "worktrees", "worktree", worktree_id)
            now = self._now()
            sql = f"{_UPDATE} AND {_GUARDS[status]} RETURNING {_COLUMNS}"
            row = transaction.one(sql, (*values, now, session_id))
            if row is None:
                current = _session(found(transaction.one(_GET, (session_id,)), "session", session_id))
                raise ConflictError(f"session {session_id} is {current.status} and cannot become {status}")
            if status is not None and status not in _OPEN:
                claims.release(transaction, session_id)
            if status is not None:
                event_log.append(transaction, now, f"session.{status}", "{}", session_id=session_id)
        if status is not None:
            self._announce(Notice(f"session.{status}", session_id))
        return _session(row)

    def touch(self, session_ids: Iterable[int]) -> None:
        """Note that the sessions are in use; those that have ended stay as they are."""
        with self._database.write() as transaction:
            now = self._now()
            for session_id in session_ids:
                transaction.run(f"UPDATE sessions SET updated_at = ? WHERE id = ? AND {_LIVE}", (now, session_id))

    def expired(self, now: datetime) -> list[Session]:
        """Sessions that have not ended although their time is over."""
        sql = f"SELECT {_COLUMNS} FROM sessions WHERE {_LIVE} AND expires_at <= ? ORDER BY id"
        return [_session(row) for row in self._all(sql, (epoch(now),))]

    def secrets(self, session_id: int) -> dict[str, str]:
        """What the session keeps sealed; empty when there is nothing, or nothing more."""
        row = self._one("SELECT sealed_secrets FROM sessions WHERE id = ?", (session_id,))
        (sealed,) = found(row, "session", session_id)
        return {} if sealed is None else self._sealer.unseal(bytes(sealed), _place(session_id))

    def drop_secrets(self, session_id: int) -> None:
        """Forget what the session keeps sealed."""
        with self._database.write() as transaction:
            transaction.run("UPDATE sessions SET sealed_secrets = NULL WHERE id = ?", (session_id,))

    def count_open(self, token_id: int) -> int:
        """How many sessions of a token have not ended."""
        row = self._one(f"SELECT COUNT(*) FROM sessions WHERE owner_token_id = ? AND {_LIVE}", (token_id,))
        return row[0] if row else 0


def insert(transaction: Transaction, now: float, values: tuple[object, ...], metadata: str) -> Session:
    """Insert a session and its event ``session.created``."""
    session = _session(found(transaction.one(_INSERT, (*values, metadata, now, now)), "session", "new"))
    event_log.append(transaction, now, "session.created", "{}", session_id=session.id)
    return session


def seal_secrets(transaction: Transaction, sealer: Sealer, session_id: int, secrets: Mapping[str, str]) -> None:
    """Keep secrets with a session, sealed."""
    sealed = sealer.seal(secrets, _place(session_id))
    transaction.run("UPDATE sessions SET sealed_secrets = ? WHERE id = ?", (sealed, session_id))


def _place(session_id: int) -> str:
    return f"session {session_id}"


def _merged(transaction: Transaction, session_id: int, merge: Mapping[str, Any]) -> str:
    transaction.lock(f"session:{session_id}")  # before the read: the next writer sees what this one has written
    row = found(transaction.one(_GET, (session_id,)), "session", session_id)
    return mapping_text({**mapping_from(row[9]), **merge}, what="session metadata")


def _session(row: Row) -> Session:
    return Session(
        id=row[0],
        repository_id=row[1],
        worktree_id=row[2],
        status=SessionStatus(row[3]),
        commit_sha=row[4],
        patch_hash=row[5],
        requested_by=row[6],
        owner_token_id=row[7],
        expires_at=optional_moment(row[8]),
        metadata=mapping_from(row[9]),
        created_at=moment(row[10]),
        updated_at=moment(row[11]),
    )
