"""The worktrees table: workspaces and their leases.

    idle --lease--> reserved --mark_busy--> busy --release--> idle
                        |                     ^                ^
                        +-----------------------release--------+

Each lease adds one to ``generation`` and has a token. Every step of a holder is a compare-and-set on both, so a former
holder cannot change anything.
"""

from __future__ import annotations

from datetime import datetime

from debug_server.errors import ConflictError
from debug_server.model import Worktree, WorktreeStatus
from debug_server.store.connection import Row
from debug_server.store.encoding import epoch, mapping_from, moment, optional_moment
from debug_server.store.table import ALL_ROWS, Table, filters, keyset, require, require_registered, require_row

_COLUMNS = (
    "id, repository_id, path, status, commit_sha, environment_hash, owner, lease_token, generation, lease_expires_at,"
    " backend, metadata, created_at, updated_at, process"
)
_GET = f"SELECT {_COLUMNS} FROM worktrees WHERE id = ?"
_HELD_LEASE = "WHERE id = ? AND lease_token = ? AND generation = ? AND status <> 'idle'"
_INSERT = (
    "INSERT INTO worktrees (repository_id, path, status, backend, created_at, updated_at)"
    f" VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO NOTHING RETURNING {_COLUMNS}"
)
_LEASE = (
    "UPDATE worktrees SET status = 'reserved', owner = ?, lease_token = ?, generation = generation + 1,"
    " commit_sha = ?, environment_hash = COALESCE(?, environment_hash), lease_expires_at = ?, process = ?,"
    " updated_at = ?"
    f" WHERE id = ? AND (status = 'idle' OR lease_expires_at <= ?) RETURNING {_COLUMNS}"
)
_RELEASE = (
    "UPDATE worktrees SET status = 'idle', owner = NULL, lease_token = NULL, lease_expires_at = NULL,"
    f" process = NULL, commit_sha = ?, environment_hash = ?, updated_at = ? {_HELD_LEASE}"
)


class Worktrees(Table):
    """Workspaces, their holders and the expiry of their leases."""

    def add(self, repository_id: int, path: str, backend: str) -> Worktree:
        """Register an idle workspace; ConflictError if the path is known."""
        with self._database.write() as transaction:
            require(transaction, "repositories", "repository", repository_id)
            now = self._now()
            row = transaction.one(_INSERT, (repository_id, path, WorktreeStatus.IDLE.value, backend, now, now))
            require_registered(transaction, repository_id)
        if row is None:
            raise ConflictError(f"a worktree at {path!r} is already registered")
        return _worktree(row)

    def get(self, worktree_id: int) -> Worktree:
        """The row, or NotFoundError."""
        return _worktree(require_row(self._one(_GET, (worktree_id,)), "worktree", worktree_id))

    def page(
        self, repository_id: int | None = None, *, after: int = 0, limit: int = ALL_ROWS, newest: bool = False
    ) -> list[Worktree]:
        """Workspaces (of a repository) after an id, in that order or newest first."""
        beyond, order = keyset("id", after, newest=newest)
        terms, params = filters(beyond, ("repository_id = ?", repository_id))
        rows = self._all(f"SELECT {_COLUMNS} FROM worktrees WHERE {terms} {order} LIMIT ?", (*params, limit))
        return [_worktree(row) for row in rows]

    def lease(
        self,
        *,
        worktree_id: int,
        owner: str,
        lease_token: str,
        commit_sha: str,
        environment_hash: str | None,
        expires_at: datetime,
        process: str | None = None,
    ) -> Worktree | None:
        """Lease an idle workspace, or one whose lease has expired; None if another holder has it.

        If the row did not change since the caller read it, the new ``generation`` is exactly one more. An
        ``environment_hash`` of None keeps the row's value.
        """
        with self._database.write() as transaction:
            now = self._now()
            lease = (owner, lease_token, commit_sha, environment_hash, epoch(expires_at), process)
            row = transaction.one(_LEASE, (*lease, now, worktree_id, now))
            if row is None:
                require(transaction, "worktrees", "worktree", worktree_id)
        return None if row is None else _worktree(row)

    def renew(self, worktree_id: int, lease_token: str, generation: int, expires_at: datetime) -> bool:
        """Set a new expiry; False if the lease is no longer the caller's."""
        sql = f"UPDATE worktrees SET lease_expires_at = ?, updated_at = ? {_HELD_LEASE}"
        with self._database.write() as transaction:
            return transaction.run(sql, (epoch(expires_at), self._now(), worktree_id, lease_token, generation)) == 1

    def mark_busy(self, worktree_id: int, lease_token: str, generation: int) -> bool:
        """reserved -> busy; False if the lease is no longer the caller's."""
        sql = f"UPDATE worktrees SET status = 'busy', updated_at = ? {_HELD_LEASE}"
        with self._database.write() as transaction:
            return transaction.run(sql, (self._now(), worktree_id, lease_token, generation)) == 1

    def release(
        self,
        worktree_id: int,
        lease_token: str,
        generation: int,
        *,
        commit_sha: str | None,
        environment_hash: str | None,
    ) -> bool:
        """Release the lease and store the current commit and environment; False if it was already released.

        ConflictError if another holder has the workspace now.
        """
        with self._database.write() as transaction:
            values = (commit_sha, environment_hash, self._now(), worktree_id, lease_token, generation)
            if transaction.run(_RELEASE, values) == 1:
                return True
            current = _worktree(require_row(transaction.one(_GET, (worktree_id,)), "worktree", worktree_id))
        if current.status is WorktreeStatus.IDLE and current.generation == generation:
            return False
        raise ConflictError(
            f"worktree {worktree_id} is not leased in generation {generation} with this token:"
            f" it is {current.status}, generation {current.generation}, owner {current.owner!r}"
        )

    def move(self, worktree_id: int, lease_token: str, generation: int, path: str) -> bool:
        """Give the row another directory; False if the lease is no longer the caller's."""
        sql = f"UPDATE worktrees SET path = ?, updated_at = ? {_HELD_LEASE}"
        with self._database.write() as transaction:
            return transaction.run(sql, (path, self._now(), worktree_id, lease_token, generation)) == 1

    def expired(self, now: datetime) -> list[Worktree]:
        """Leased workspaces whose lease has expired."""
        sql = f"SELECT {_COLUMNS} FROM worktrees WHERE status <> 'idle' AND lease_expires_at <= ? ORDER BY id"
        return [_worktree(row) for row in self._all(sql, (epoch(now),))]

    def clear(self, worktree_id: int) -> Worktree:
        """Remove commit and environment from the row."""
        return self._set(worktree_id, "commit_sha = NULL, environment_hash = NULL", ())

    def remove(self, worktree_id: int) -> None:
        """Remove the row; its sessions stay."""
        with self._database.write() as transaction:
            if not transaction.run("DELETE FROM worktrees WHERE id = ?", (worktree_id,)):
                require_row(None, "worktree", worktree_id)

    def _set(self, worktree_id: int, change: str, values: tuple[object, ...]) -> Worktree:
        sql = f"UPDATE worktrees SET {change}, updated_at = ? WHERE id = ? RETURNING {_COLUMNS}"
        with self._database.write() as transaction:
            row = transaction.one(sql, (*values, self._now(), worktree_id))
        return _worktree(require_row(row, "worktree", worktree_id))


def _worktree(row: Row) -> Worktree:
    return Worktree(
        id=row[0],
        repository_id=row[1],
        path=row[2],
        status=WorktreeStatus(row[3]),
        commit_sha=row[4],
        environment_hash=row[5],
        owner=row[6],
        lease_token=row[7],
        generation=row[8],
        lease_expires_at=optional_moment(row[9]),
        backend=row[10],
        metadata=mapping_from(row[11]),
        created_at=moment(row[12]),
        updated_at=moment(row[13]),
        process=row[14],
    )
