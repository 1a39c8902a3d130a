"""The events table: numbered facts, which a reader can follow by cursor without gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from debug_server.model import Event, EventHead, Notice
from debug_server.store.connection import Row, Transaction
from debug_server.store.encoding import mapping_from, mapping_text, moment
from debug_server.store.table import Table, filters, require_row

_COLUMNS = "seq, kind, session_id, command_id, subject, data, created_at"
_HEADS = "SELECT seq, kind, session_id, command_id, subject FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
_INSERT = (
    f"INSERT INTO events ({_COLUMNS})"
    " VALUES ((SELECT COALESCE(MAX(seq), 0) + 1 FROM events), ?, ?, ?, ?, ?, ?) RETURNING seq"
)


def append(
    transaction: Transaction,
    now: float,
    kind: str,
    data: str,
    *,
    session_id: int | None = None,
    command_id: int | None = None,
    subject: str | None = None,
) -> int:
    """Append inside a transaction, as its last statement.

    The lock is held until the commit, so numbers become visible in order and a rollback leaves no gap. It must be the
    last lock of a transaction, so that transactions cannot deadlock.
    """
    transaction.lock("events")
    row = transaction.one(_INSERT, (kind, session_id, command_id, subject, data, now))
    return int(require_row(row, "event", kind)[0])


class EventLog(Table):
    """Events, and the listeners that are called after each commit with new events."""

    def append(
        self,
        kind: str,
        *,
        session_id: int | None = None,
        command_id: int | None = None,
        subject: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Append a durable event and return its number; an event of a command also belongs to its session."""
        text = mapping_text(data, what="event data")
        with self._database.write() as transaction:
            if session_id is None and command_id is not None:
                row = transaction.one("SELECT session_id FROM commands WHERE id = ?", (command_id,))
                session_id = require_row(row, "command", command_id)[0]
            seq = append(
                transaction, self._now(), kind, text, session_id=session_id, command_id=command_id, subject=subject
            )
        self._notify(Notice(kind, session_id, command_id))
        return seq

    def read(
        self,
        after: int = 0,
        limit: int = 1000,
        *,
        kind: str | None = None,
        session_id: int | None = None,
        command_id: int | None = None,
        subject: str | None = None,
    ) -> list[Event]:
        """Up to ``limit`` events numbered above ``after``; ``kind`` matches as a prefix."""
        terms, params = filters(
            ("seq > ?", after),
            ("session_id = ?", session_id),
            # Through the session: one index serves both.
            ("session_id = (SELECT session_id FROM commands WHERE id = ?) AND command_id = ?", command_id, command_id),
            ("subject = ?", subject),
            ("substr(kind, 1, length(CAST(? AS TEXT))) = ?", kind, kind),
        )
        sql = f"SELECT {_COLUMNS} FROM events WHERE {terms} ORDER BY seq LIMIT ?"
        return [_event(row) for row in self._all(sql, (*params, limit))]

    def heads(self, after: int = 0, limit: int = 1000) -> list[EventHead]:
        """What up to ``limit`` events numbered above ``after`` are about; their data is not decoded."""
        return [EventHead._make(row) for row in self._all(_HEADS, (after, limit))]

    def last(self) -> int:
        """The number of the newest event, 0 if there is none; a reader that starts there gets only new events."""
        row = self._one("SELECT COALESCE(MAX(seq), 0) FROM events", ())
        return row[0] if row else 0

    def add_listener(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call ``listener`` in the committing thread after this store added an event; returns its removal.

        It must be fast and must not raise. Events of other processes do not call it.
        """
        return self._listeners.add(listener)


def _event(row: Row) -> Event:
    seq, kind, session_id, command_id, subject, data, created_at = row
    return Event(
        seq=seq,
        kind=kind,
        session_id=session_id,
        command_id=command_id,
        subject=subject,
        data=mapping_from(data),
        created_at=moment(created_at),
    )
