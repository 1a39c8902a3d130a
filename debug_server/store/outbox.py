"""The outbox table: messages to be delivered elsewhere, in order within each lane.

    events --add (with the cursor, in one commit)--> outbox --delivered or given up--> removed
                                                            |  ^
                                                            +--+ postponed

The cursor moves in the commit that adds the messages: a crash neither loses nor repeats one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from debug_server.model import OutgoingMessage
from debug_server.store.connection import Row
from debug_server.store.encoding import epoch, mapping_from, mapping_text, moment
from debug_server.store.table import Table

_COLUMNS = "id, topic, lane, data, attempts, due_at, created_at"
_HEADS = (
    f"SELECT {_COLUMNS} FROM outbox WHERE id IN (SELECT MIN(id) FROM outbox WHERE topic = ? GROUP BY lane)"
    " ORDER BY due_at, id LIMIT ?"
)
_INSERT = "INSERT INTO outbox (topic, lane, data, due_at, created_at) VALUES (?, ?, ?, ?, ?)"
_MOVE = "INSERT INTO cursors (name, seq) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq"


class Outbox(Table):
    """Cursors, and the messages up to them."""

    def cursor(self, name: str) -> int | None:
        """The number of the last processed event; None before the first."""
        row = self._one("SELECT seq FROM cursors WHERE name = ?", (name,))
        return None if row is None else int(row[0])

    def add(self, name: str, seq: int, messages: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Move the cursor ``name`` to ``seq`` and add the (lane, data) of its messages."""
        with self._database.write() as transaction:
            now = self._now()
            for lane, data in messages:
                transaction.run(_INSERT, (name, lane, mapping_text(data, what="a message"), now, now))
            transaction.run(_MOVE, (name, seq))

    def heads(self, topic: str, limit: int = 1000) -> list[OutgoingMessage]:
        """The first message of each lane, the most urgent first."""
        return [_outgoing(row) for row in self._all(_HEADS, (topic, limit))]

    def postpone(self, message_id: int, due_at: datetime) -> None:
        """Count an attempt, and deliver it again at ``due_at``."""
        with self._database.write() as transaction:
            transaction.run(
                "UPDATE outbox SET attempts = attempts + 1, due_at = ? WHERE id = ?", (epoch(due_at), message_id)
            )

    def remove(self, message_id: int) -> bool:
        """Remove a message that is delivered or given up; returns whether its lane is empty now."""
        with self._database.write() as transaction:
            row = transaction.one("DELETE FROM outbox WHERE id = ? RETURNING topic, lane", (message_id,))
            return (
                row is None or transaction.one("SELECT 1 FROM outbox WHERE topic = ? AND lane = ? LIMIT 1", row) is None
            )


def _outgoing(row: Row) -> OutgoingMessage:
    return OutgoingMessage(
        id=row[0],
        topic=row[1],
        lane=row[2],
        data=mapping_from(row[3]),
        attempts=row[4],
        due_at=moment(row[5]),
        created_at=moment(row[6]),
    )
