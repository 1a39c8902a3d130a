"""Removes the rows of closed sessions, in small transactions that may be interrupted between any two.

    events --> commands, with the artifacts of each --> the rest and the session

The newest rows stay: ids are one above the newest row, and must not be given twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from debug_server.errors import ConflictError
from debug_server.model import SessionStatus
from debug_server.store.connection import Transaction
from debug_server.store.encoding import moment
from debug_server.store.table import Table

_PAGE = 200
_OPEN = (SessionStatus.PENDING, SessionStatus.RUNNING)
# Of the newest session, and of those that have the newest command and the newest artifact.
_KEPT = (
    "SELECT MAX(id) FROM sessions UNION ALL"
    " SELECT session_id FROM commands WHERE id = (SELECT MAX(id) FROM commands) UNION ALL"
    " SELECT session_id FROM artifacts WHERE id = (SELECT MAX(id) FROM artifacts)"
)
_OLDEST = f"SELECT id, status, created_at, updated_at FROM sessions WHERE id > ? ORDER BY id LIMIT {_PAGE}"
_ENDS = "SELECT (SELECT MIN(id) FROM commands), (SELECT MAX(id) FROM commands)"
_ADDED_AFTER = "SELECT created_at FROM commands WHERE id > ? ORDER BY id LIMIT 1"
_EVENTS = (
    "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE session_id = ?"
    f" AND seq < (SELECT MAX(seq) FROM events) ORDER BY seq LIMIT {_PAGE})"
)
_LOGS = (
    "SELECT id, log_path FROM commands WHERE session_id = ? AND finished_at IS NOT NULL"
    f" ORDER BY sequence LIMIT {_PAGE}"
)
# A callback that is still to be delivered needs its session.
_IN_USE = (
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM outbox WHERE lane = ?)"
    " OR EXISTS (SELECT 1 FROM sessions WHERE id = ? AND status IN ('pending', 'running'))"
    " OR EXISTS (SELECT 1 FROM commands WHERE session_id = ? AND status IN ('pending', 'running'))"
)


class History(Table):
    """Finding old sessions and removing them."""

    def kept(self) -> set[int]:
        """The sessions that must stay, because they have the newest rows."""
        return {row[0] for row in self._all(_KEPT) if row[0] is not None}

    def oldest(self, after: int = 0) -> list[tuple[int, datetime, datetime | None]]:
        """A page of sessions by id: the id, when it was opened, and when it was closed or None."""
        rows = self._all(_OLDEST, (after,))
        return [
            (number, moment(created), None if status in _OPEN else moment(updated))
            for number, status, created, updated in rows
        ]

    def oldest_of_newest(self, commands: int) -> datetime | None:
        """When the oldest of the newest ``commands`` commands was added; None if there are no others."""
        oldest, newest = self._one(_ENDS, ()) or (None, None)
        if oldest is None or newest - commands < oldest:
            return None
        row = self._one(_ADDED_AFTER, (newest - commands,))
        return None if row is None else moment(row[0])

    def is_in_use(self, session_id: int) -> bool:
        """Whether the session is open, or something of it is still to be done."""
        return self._one(_IN_USE, (session_id,) * 3) is not None

    def remove_events(self, session_id: int) -> bool:
        """Remove a page of the session's events; whether there may be more."""
        with self._database.write() as transaction:
            return transaction.run(_EVENTS, (session_id,)) == _PAGE

    def logs(self, session_id: int) -> list[tuple[int, str | None]]:
        """The oldest commands of a session, at most a page, and the log of each."""
        return [(row[0], row[1]) for row in self._all(_LOGS, (session_id,))]

    def remove_commands(self, command_ids: Sequence[int]) -> None:
        """Remove ended commands, and their artifacts."""
        marks = ", ".join("?" * len(command_ids))
        with self._database.write() as transaction:
            transaction.run(f"DELETE FROM artifacts WHERE command_id IN ({marks})", tuple(command_ids))
            transaction.run(
                f"DELETE FROM commands WHERE id IN ({marks}) AND finished_at IS NOT NULL", tuple(command_ids)
            )

    def remove_session(self, session_id: int) -> None:
        """Remove a session without commands; ConflictError if it is in use."""
        with self._database.write() as transaction:
            _check_unused(transaction, session_id)
            for table in ("artifacts", "debuggers", "session_claims"):
                transaction.run(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            transaction.run("DELETE FROM sessions WHERE id = ?", (session_id,))


def _check_unused(transaction: Transaction, session_id: int) -> None:
    if transaction.one(_IN_USE, (session_id,) * 3) is not None:
        raise ConflictError(f"session {session_id} is in use: close it first")
