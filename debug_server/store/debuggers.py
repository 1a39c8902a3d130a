"""The debuggers table: debugger tunnels of sessions. The token of a tunnel must not be in ``data``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from debug_server.model import DebuggerState
from debug_server.store.connection import Row
from debug_server.store.encoding import mapping_from, mapping_text, moment, optional_mapping_text
from debug_server.store.table import Table, require, require_row

_COLUMNS = "id, session_id, kind, host, port, status, data, created_at, updated_at"
_INSERT = (
    "INSERT INTO debuggers (session_id, kind, host, port, status, data, created_at, updated_at)"
    f" VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}"
)
_UPDATE = (
    "UPDATE debuggers SET status = COALESCE(?, status), data = COALESCE(?, data), updated_at = ?"
    f" WHERE id = ? RETURNING {_COLUMNS}"
)


class Debuggers(Table):
    """Recording and finding debugger tunnels."""

    def add(
        self,
        session_id: int,
        *,
        kind: str,
        host: str,
        port: int,
        status: str,
        data: Mapping[str, Any] | None = None,
    ) -> DebuggerState:
        """Record a tunnel."""
        text = mapping_text(data, what="debugger data")
        with self._database.write() as transaction:
            require(transaction, "sessions", "session", session_id)
            now = self._now()
            row = transaction.one(_INSERT, (session_id, kind, host, port, status, text, now, now))
        return _debugger(require_row(row, "session", session_id))

    def get(self, debugger_id: int) -> DebuggerState:
        """The row, or NotFoundError."""
        row = self._one(f"SELECT {_COLUMNS} FROM debuggers WHERE id = ?", (debugger_id,))
        return _debugger(require_row(row, "debugger", debugger_id))

    def all(self, session_id: int) -> list[DebuggerState]:
        """A session's tunnels, oldest first."""
        sql = f"SELECT {_COLUMNS} FROM debuggers WHERE session_id = ? ORDER BY id"
        return [_debugger(row) for row in self._all(sql, (session_id,))]

    def update(
        self, debugger_id: int, *, status: str | None = None, data: Mapping[str, Any] | None = None
    ) -> DebuggerState:
        """Change the given fields."""
        text = optional_mapping_text(data, what="debugger data")
        with self._database.write() as transaction:
            row = transaction.one(_UPDATE, (status, text, self._now(), debugger_id))
        return _debugger(require_row(row, "debugger", debugger_id))


def _debugger(row: Row) -> DebuggerState:
    return DebuggerState(
        id=row[0],
        session_id=row[1],
        kind=row[2],
        host=row[3],
        port=row[4],
        status=row[5],
        data=mapping_from(row[6]),
        created_at=moment(row[7]),
        updated_at=moment(row[8]),
    )
