"""The sessions table.

    pending --> running --> completed | failed | cancelled
       |                          ^
       +--------------------------+

A terminal status is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypedDict, Unpack

from debug_server.errors import ConflictError
from debug_server.model import Cleanup, Notice, Session, SessionPlan, SessionStatus
from debug_server.store import event_log, session_claims
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import (
    decode,
    encode,
    epoch,
    mapping_from,
    mapping_text,
    moment,
    optional_epoch,
    optional_moment,
)
from debug_server.store.sealing import Sealer
from debug_server.store.table import Table, filters, keyset, require, require_registered, require_row

_COLUMNS = (
    "id, repository_id, worktree_id, status, commit_sha, patch_hash, requested_by, owner_token_id, expires_at,"
    " metadata, created_at, updated_at, plan, lease_generation, cleanup, idempotency_key"
)
_GET = f"SELECT {_COLUMNS} FROM sessions WHERE id = ?"
_INSERT = (
    "INSERT INTO sessions (repository_id, worktree_id, lease_generation, status, commit_sha, patch_hash, requested_by,"
    " owner_token_id, expires_at, idempotency_key, plan, metadata, created_at, updated_at)"
    f" VALUES ({', '.join('?' * 14)}) RETURNING {_COLUMNS}"
)
_SET_STATUS = "UPDATE sessions SET status = ?, cleanup = COALESCE(?, cleanup), updated_at = ? WHERE id = ?"
_SET_LEASE = (
    "UPDATE sessions SET worktree_id = ?, lease_generation = ?, commit_sha = ?, updated_at = ?"
    " WHERE id = ? AND worktree_id IS NULL"
)
_OPEN = (SessionStatus.PENDING, SessionStatus.RUNNING)
_IS_OPEN = "status IN ('pending', 'running')"
# Which rows may take a status: the condition is part of the UPDATE, so it also holds with concurrent writers.
_GUARDS = {
    SessionStatus.PENDING: "status = 'pending'",
    SessionStatus.RUNNING: _IS_OPEN,
    SessionStatus.COMPLETED: _IS_OPEN,
    SessionStatus.FAILED: _IS_OPEN,
    SessionStatus.CANCELLED: _IS_OPEN,
}


class NewSession(TypedDict, total=False):
    """Keywords of ``store.sessions.create``; ``SessionDraft.of`` has their defaults."""

    repository_id: int | None
    commit_sha: str | None
    worktree_id: int | None
    lease_generation: int | None
    patch_hash: str | None
    requested_by: str | None
    owner_token_id: int | None
    expires_at: datetime | None
    idempotency_key: str | None
    plan: SessionPlan | None
    metadata: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDraft:
    """A session that is checked and encoded before the transaction that inserts it."""

    columns: tuple[object, ...]

    @classmethod
    def of(
        cls,
        *,
        repository_id: int | None = None,
        commit_sha: str | None = None,
        worktree_id: int | None = None,
        lease_generation: int | None = None,
        patch_hash: str | None = None,
        requested_by: str | None = None,
        owner_token_id: int | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
        plan: SessionPlan | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> SessionDraft:
        """The arguments of ``store.sessions.create``."""
        return cls(
            columns=(
                repository_id,
                worktree_id,
                lease_generation,
                SessionStatus.PENDING.value,
                commit_sha,
                patch_hash,
                requested_by,
                owner_token_id,
                optional_epoch(expires_at),
                idempotency_key,
                encode((plan or SessionPlan()).to_json()),
                mapping_text(metadata, what="session metadata"),
            )
        )


class Sessions(Table):
    """Opening, finding and ending sessions."""

    def create(self, **asked: Unpack[NewSession]) -> Session:
        """Open a pending session; event ``session.created``."""
        draft = SessionDraft.of(**asked)
        with self._database.write() as transaction:
            require(transaction, "repositories", "repository", asked.get("repository_id"))
            require(transaction, "worktrees", "worktree", asked.get("worktree_id"))
            require(transaction, "tokens", "token", asked.get("owner_token_id"))
            session = insert(transaction, self._now(), draft)
        self._notify(Notice("session.created", session.id))
        return session

    def get(self, session_id: int) -> Session:
        """The row, or NotFoundError."""
        return _session(require_row(self._one(_GET, (session_id,)), "session", session_id))

    def page(
        self,
        *,
        status: SessionStatus | Sequence[SessionStatus] | None = None,
        repository_id: int | None = None,
        owner_token_id: int | None = None,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
    ) -> list[Session]:
        """Sessions after an id, in that order or newest first; of one status, of several, or (None, empty) of all."""
        beyond, order = keyset("id", after, newest=newest)
        statuses = (status,) if isinstance(status, SessionStatus) else tuple(status or ())
        terms, params = filters(beyond, ("repository_id = ?", repository_id), ("owner_token_id = ?", owner_token_id))
        if not statuses and len(params) > 1:
            statuses = tuple(SessionStatus)
        # Each status has an index in the order of ids, also for one repository or one owner: read a page of each.
        page = f"SELECT id FROM sessions WHERE status = ? AND {terms} {order} LIMIT ?"
        ids = " UNION ALL ".join(f"SELECT id FROM ({page}) AS page{number}" for number in range(len(statuses)))
        where, values = terms, params
        if statuses:
            where = f"id IN ({ids})"
            values = tuple(value for item in statuses for value in (item.value, *params, limit))
        rows = self._all(f"SELECT {_COLUMNS} FROM sessions WHERE {where} {order} LIMIT ?", (*values, limit))
        return [_session(row) for row in rows]

    def set_status(self, session_id: int, status: SessionStatus, *, cleanup: Cleanup | None = None) -> Session:
        """Change the status; ConflictError if it cannot follow the current one; event ``session.<status>``."""
        cleanup_text = None if cleanup is None else encode(asdict(cleanup))
        with self._database.write() as transaction:
            now = self._now()
            sql = f"{_SET_STATUS} AND {_GUARDS[status]} RETURNING {_COLUMNS}"
            row = transaction.one(sql, (status.value, cleanup_text, now, session_id))
            if row is None:
                current = _session(require_row(transaction.one(_GET, (session_id,)), "session", session_id))
                raise ConflictError(f"session {session_id} is {current.status} and cannot become {status}")
            if status not in _OPEN:
                session_claims.release(transaction, session_id)
            event_log.append(transaction, now, f"session.{status}", "{}", session_id=session_id)
        self._notify(Notice(f"session.{status}", session_id))
        return _session(row)

    def set_cleanup(self, session_id: int, cleanup: Cleanup) -> None:
        """Record what happened to the directory of a closed session."""
        with self._database.write() as transaction:
            transaction.run("UPDATE sessions SET cleanup = ? WHERE id = ?", (encode(asdict(cleanup)), session_id))

    def set_lease(self, session_id: int, *, worktree_id: int, generation: int, commit_sha: str) -> Session:
        """Set the lease of an open session without a workspace; ConflictError if it has one or has ended."""
        with self._database.write() as transaction:
            require(transaction, "worktrees", "worktree", worktree_id)
            sql = f"{_SET_LEASE} AND {_IS_OPEN} RETURNING {_COLUMNS}"
            row = transaction.one(sql, (worktree_id, generation, commit_sha, self._now(), session_id))
            if row is None:
                current = _session(require_row(transaction.one(_GET, (session_id,)), "session", session_id))
                raise ConflictError(
                    f"session {session_id} cannot get workspace {worktree_id}:"
                    f" it is {current.status} and has workspace {current.worktree_id}"
                )
        return _session(row)

    def by_idempotency_key(
        self, idempotency_key: str, *, owner_token_id: int | None, since: datetime
    ) -> Session | None:
        """The newest session that a request of this owner with this key opened, at ``since`` or later.

        A new attempt opens a session only if no earlier attempt has left one that can be continued.
        """
        terms, params = filters(
            ("idempotency_key = ?", idempotency_key),
            ("created_at >= ?", epoch(since)),
            ("owner_token_id = ?", owner_token_id),
        )
        row = self._one(f"SELECT {_COLUMNS} FROM sessions WHERE {terms} ORDER BY id DESC LIMIT 1", params)
        return None if row is None else _session(row)

    def touch(self, session_ids: Iterable[int]) -> None:
        """Record that open sessions are in use; ended ones do not change."""
        with self._database.write() as transaction:
            now = self._now()
            for session_id in session_ids:
                transaction.run(f"UPDATE sessions SET updated_at = ? WHERE id = ? AND {_IS_OPEN}", (now, session_id))

    def expired(self, now: datetime) -> list[Session]:
        """Open sessions whose ``expires_at`` has passed."""
        sql = f"SELECT {_COLUMNS} FROM sessions WHERE {_IS_OPEN} AND expires_at <= ? ORDER BY id"
        return [_session(row) for row in self._all(sql, (epoch(now),))]

    def secrets(self, session_id: int) -> dict[str, str]:
        """The decrypted secrets of a session; empty if it has none or they were removed."""
        row = self._one("SELECT sealed_secrets FROM sessions WHERE id = ?", (session_id,))
        (sealed,) = require_row(row, "session", session_id)
        return {} if sealed is None else self._sealer.unseal(bytes(sealed), _seal_context(session_id))

    def drop_secrets(self, session_id: int) -> None:
        """Delete the session's secrets."""
        with self._database.write() as transaction:
            transaction.run("UPDATE sessions SET sealed_secrets = NULL WHERE id = ?", (session_id,))

    def count_open(self, token_id: int) -> int:
        """How many sessions of a token have not ended."""
        row = self._one(f"SELECT COUNT(*) FROM sessions WHERE owner_token_id = ? AND {_IS_OPEN}", (token_id,))
        return row[0] if row else 0

    def patches(self) -> dict[str, bool]:
        """The hash of every session's patch, and whether one of the sessions with it is open."""
        sql = f"SELECT patch_hash, MAX(CASE WHEN {_IS_OPEN} THEN 1 ELSE 0 END) FROM sessions"
        rows = self._all(f"{sql} WHERE patch_hash IS NOT NULL GROUP BY patch_hash", ())
        return {sha256: bool(is_open) for sha256, is_open in rows}

    def count_with_workspace(self, token_id: int) -> int:
        """How many of those have a workspace of a repository."""
        sql = f"SELECT COUNT(*) FROM sessions WHERE owner_token_id = ? AND worktree_id IS NOT NULL AND {_IS_OPEN}"
        row = self._one(sql, (token_id,))
        return row[0] if row else 0


def insert(transaction: Transaction, now: float, draft: SessionDraft) -> Session:
    """Insert a session and its event ``session.created``."""
    session = _session(require_row(transaction.one(_INSERT, (*draft.columns, now, now)), "session", "new"))
    require_registered(transaction, session.repository_id)
    event_log.append(transaction, now, "session.created", "{}", session_id=session.id)
    return session


def seal_secrets(transaction: Transaction, sealer: Sealer, session_id: int, secrets: Mapping[str, str]) -> None:
    """Store secrets with a session, sealed."""
    sealed = sealer.seal(secrets, _seal_context(session_id))
    transaction.run("UPDATE sessions SET sealed_secrets = ? WHERE id = ?", (sealed, session_id))


def _seal_context(session_id: int) -> str:
    return f"session {session_id}"


@lru_cache(maxsize=256)
def _plan_from(text: str) -> SessionPlan:
    return SessionPlan.from_json(decode(text))


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
        plan=_plan_from(row[12]),
        lease_generation=row[13],
        cleanup=None if row[14] is None else Cleanup(**decode(row[14])),
        idempotency_key=row[15],
    )
