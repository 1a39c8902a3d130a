"""The repositories table: registered git remotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debug_server.errors import ConflictError, InvalidInputError
from debug_server.model import Repository, check_name
from debug_server.store.connection import Row
from debug_server.store.encoding import mapping_from, mapping_text, moment, optional_mapping_text
from debug_server.store.table import ALL_ROWS, Table, keyset, require_row

_COLUMNS = "id, name, remote_url, default_branch, description, settings, created_at, updated_at"
_INSERT = (
    "INSERT INTO repositories (name, remote_url, default_branch, description, settings, created_at, updated_at)"
    f" VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING {_COLUMNS}"
)
_UPDATE = (
    "UPDATE repositories SET remote_url = COALESCE(?, remote_url), default_branch = COALESCE(?, default_branch),"
    " description = COALESCE(?, description), settings = COALESCE(?, settings), updated_at = ?"
    f" WHERE id = ? RETURNING {_COLUMNS}"
)

_REGISTERED = "removed_at IS NULL"
_REMOVED = "SELECT 1 FROM repositories WHERE name = ? AND removed_at IS NOT NULL"
_NAME = f"SELECT name FROM repositories WHERE id = ? AND {_REGISTERED}"
_REMOVE = "UPDATE repositories SET removed_at = ?, updated_at = ? WHERE id = ?"
_FREE_NAME = "UPDATE repositories SET name = ? WHERE id = ? AND name = ? AND removed_at IS NOT NULL"
_OPEN_SESSIONS = (
    "SELECT id FROM sessions WHERE repository_id = ? AND status IN ('pending', 'running') ORDER BY id LIMIT 5"
)
_DISCARD = (
    "DELETE FROM repositories WHERE id = ?"
    " AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.repository_id = repositories.id)"
    " AND NOT EXISTS (SELECT 1 FROM worktrees WHERE worktrees.repository_id = repositories.id)"
)


class Repositories(Table):
    """Registering and finding repositories."""

    def create(
        self,
        name: str,
        remote_url: str,
        *,
        default_branch: str = "main",
        description: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Repository:
        """Register a remote; ConflictError if the name is taken."""
        check_name(name, what="repository name")
        if not remote_url:
            raise InvalidInputError(f"repository {name!r} needs the URL or path of its remote")
        text = mapping_text(settings, what="repository settings")
        with self._database.write() as transaction:
            now = self._now()
            row = transaction.one(_INSERT, (name, remote_url, default_branch, description, text, now, now))
            other = None if row is not None else transaction.one(_REMOVED, (name,))
        if other is not None:
            raise ConflictError(f"the repository {name!r} is being removed: try again in a minute")
        if row is None:
            raise ConflictError(f"the repository name {name!r} is taken: choose another")
        return _repository(row)

    def get(self, repository_id: int) -> Repository:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM repositories WHERE id = ?", (repository_id,))
        return _repository(require_row(row, "repository", repository_id))

    def by_name(self, name: str) -> Repository:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM repositories WHERE name = ? AND {_REGISTERED}", (name,))
        return _repository(require_row(row, "repository", name))

    def page(self, *, after: int = 0, limit: int = ALL_ROWS, newest: bool = False) -> list[Repository]:
        """Repositories after an id, in that order or newest first; without removed ones."""
        (term, value), order = keyset("id", after, newest=newest)
        sql = f"SELECT {_COLUMNS} FROM repositories WHERE {term} AND {_REGISTERED} {order} LIMIT ?"
        return [_repository(row) for row in self._all(sql, (value, limit))]

    def discard(self, repository_id: int) -> bool:
        """Delete the row of an unused repository; False if it has a session or a workspace."""
        with self._database.write() as transaction:
            return transaction.run(_DISCARD, (repository_id,)) == 1

    def remove(self, repository_id: int) -> None:
        """Remove a repository and its workspaces; ConflictError while one is in use.

        The row stays for the history of its sessions. It keeps its name, so that nobody registers it while its files
        are there: ``free_name`` comes after them.
        """
        with self._database.write() as transaction:
            now = self._now()
            name = transaction.one(_NAME, (repository_id,))
            (found,) = require_row(name, "repository", repository_id)
            # First, so that no session or workspace can be added until the end of the transaction.
            transaction.run(_REMOVE, (now, now, repository_id))
            if sessions := transaction.all(_OPEN_SESSIONS, (repository_id,)):
                ids = ", ".join(str(row[0]) for row in sessions)
                raise ConflictError(f"the repository {found!r} has open sessions ({ids}): close them first")
            transaction.run("DELETE FROM worktrees WHERE repository_id = ? AND status = 'idle'", (repository_id,))
            if leased := transaction.one("SELECT path FROM worktrees WHERE repository_id = ?", (repository_id,)):
                raise ConflictError(f"the repository {found!r} has a leased workspace ({leased[0]}): release it first")

    def free_name(self, repository_id: int, name: str) -> None:
        """Name a removed repository otherwise, so that its name can be registered again."""
        with self._database.write() as transaction:
            transaction.run(_FREE_NAME, (name + _removed_suffix(repository_id), repository_id, name))

    def with_files(self) -> list[Repository]:
        """The removed repositories that still have their name, because the removal of their files was interrupted."""
        rows = self._all(f"SELECT {_COLUMNS} FROM repositories WHERE removed_at IS NOT NULL ORDER BY id")
        return [row for row in map(_repository, rows) if not row.name.endswith(_removed_suffix(row.id))]

    def update(
        self,
        repository_id: int,
        *,
        remote_url: str | None = None,
        default_branch: str | None = None,
        description: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Repository:
        """Change the given fields."""
        text = optional_mapping_text(settings, what="repository settings")
        with self._database.write() as transaction:
            row = transaction.one(_UPDATE, (remote_url, default_branch, description, text, self._now(), repository_id))
        return _repository(require_row(row, "repository", repository_id))


def _removed_suffix(repository_id: int) -> str:
    """Behind the name of a removed repository; no name of a registered one can have it."""
    return f" (removed {repository_id})"


def _repository(row: Row) -> Repository:
    return Repository(
        id=row[0],
        name=row[1],
        remote_url=row[2],
        default_branch=row[3],
        description=row[4],
        settings=mapping_from(row[5]),
        created_at=moment(row[6]),
        updated_at=moment(row[7]),
    )
