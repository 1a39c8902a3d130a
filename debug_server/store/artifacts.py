"""The artifacts table: files kept from commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debug_server.model import Artifact, ArtifactKind
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import mapping_from, mapping_text, moment
from debug_server.store.table import ALL_ROWS, Table, filters, keyset, require, require_row

_COLUMNS = "id, session_id, command_id, kind, name, path, size, sha256, content_type, metadata, created_at"
_INSERT = (
    "INSERT INTO artifacts (session_id, command_id, kind, name, path, size, sha256, content_type, metadata, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_RETURNING = f"{_INSERT} RETURNING {_COLUMNS}"
_UPDATE_EXISTING = (
    "UPDATE artifacts SET kind = ?, name = ?, size = ?, sha256 = ?, content_type = ?, metadata = ?"
    f" WHERE session_id = ? AND command_id = ? AND path = ? RETURNING {_COLUMNS}"
)


def insert_log(transaction: Transaction, now: float, session_id: int, command_id: int, path: str) -> None:
    """Record a command's log in the transaction that ends it."""
    name = path.rpartition("/")[2]
    values = (session_id, command_id, ArtifactKind.LOG.value, name, path, None, None, "text/plain", "{}", now)
    transaction.run(_INSERT, values)


class Artifacts(Table):
    """Adding and finding artifacts."""

    def add(
        self,
        *,
        session_id: int,
        command_id: int | None,
        kind: ArtifactKind,
        name: str,
        path: str,
        size: int | None = None,
        sha256: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Record a file; the same path of the same command updates the existing row."""
        text = mapping_text(metadata, what="artifact metadata")
        word = ArtifactKind(kind).value
        with self._database.write() as transaction:
            require(transaction, "sessions", "session", session_id)
            require(transaction, "commands", "command", command_id)
            transaction.lock("artifacts")
            row_key = (session_id, command_id, path)
            row = transaction.one(_UPDATE_EXISTING, (word, name, size, sha256, content_type, text, *row_key))
            if row is None:
                values = (session_id, command_id, word, name, path, size, sha256, content_type, text)
                row = transaction.one(_INSERT_RETURNING, (*values, self._now()))
        return _artifact(require_row(row, "session", session_id))

    def get(self, artifact_id: int) -> Artifact:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM artifacts WHERE id = ?", (artifact_id,))
        return _artifact(require_row(row, "artifact", artifact_id))

    def in_session(
        self,
        session_id: int,
        *,
        command_id: int | None = None,
        kind: ArtifactKind | None = None,
        after: int = 0,
        limit: int = ALL_ROWS,
        newest: bool = False,
    ) -> list[Artifact]:
        """A session's artifacts with an id above ``after``, in that order or newest first."""
        beyond, order = keyset("id", after, newest=newest)
        terms, params = filters(
            ("session_id = ?", session_id),
            ("command_id = ?", command_id),
            ("kind = ?", kind and kind.value),
            beyond,
        )
        rows = self._all(f"SELECT {_COLUMNS} FROM artifacts WHERE {terms} {order} LIMIT ?", (*params, limit))
        return [_artifact(row) for row in rows]


def _artifact(row: Row) -> Artifact:
    return Artifact(
        id=row[0],
        session_id=row[1],
        command_id=row[2],
        kind=ArtifactKind(row[3]),
        name=row[4],
        path=row[5],
        size=row[6],
        sha256=row[7],
        content_type=row[8],
        metadata=mapping_from(row[9]),
        created_at=moment(row[10]),
    )
