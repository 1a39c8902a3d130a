"""The repositories table: registered git remotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debug_server.errors import ConflictError, InvalidInputError
from debug_server.model import Repository, check_name
from debug_server.store.connection import Row
from debug_server.store.encoding import mapping_from, mapping_text, moment, optional_mapping_text
from debug_server.store.table import ALL_ROWS, Table, require_row

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

_REMOVE = (
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
        if row is None:
            raise ConflictError(f"the repository name {name!r} is taken: choose another")
        return _repository(row)

    def get(self, repository_id: int) -> Repository:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM repositories WHERE id = ?", (repository_id,))
        return _repository(require_row(row, "repository", repository_id))

    def by_name(self, name: str) -> Repository:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM repositories WHERE name = ?", (name,))
        return _repository(require_row(row, "repository", name))

    def page(self, *, after: int = 0, limit: int = ALL_ROWS) -> list[Repository]:
        """Repositories with an id above ``after``, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM repositories WHERE id > ? ORDER BY id LIMIT ?"
        return [_repository(row) for row in self._all(sql, (after, limit))]

    def remove(self, repository_id: int) -> bool:
        """Remove an unused repository; False if it has a session or a workspace."""
        with self._database.write() as transaction:
            return transaction.run(_REMOVE, (repository_id,)) == 1

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
