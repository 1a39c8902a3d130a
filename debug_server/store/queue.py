"""The queue over the commands table: claims, and their owners."""

from __future__ import annotations

from debug_server.model import Command, Notice
from debug_server.store.command_rows import COLUMNS, command_from
from debug_server.store.commands import ACTIVE, FINISHED, WAITING, cancel_waiting
from debug_server.store.session_claims import BLOCKED
from debug_server.store.table import Table


def _claim_sql(extra: str) -> str:
    return f"""
UPDATE commands SET owner = ?, attempt = attempt + 1, updated_at = ?
WHERE {WAITING} AND id = (
    SELECT waiting.id
    FROM commands AS waiting
    LEFT JOIN (SELECT queue_key, COUNT(*) AS held FROM commands WHERE {ACTIVE} GROUP BY queue_key) AS active
        ON active.queue_key = waiting.queue_key
    WHERE waiting.owner IS NULL AND waiting.finished_at IS NULL {extra}
        AND (active.held IS NULL OR active.held < waiting.key_limit)
        AND (waiting.order_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM commands AS earlier
            WHERE earlier.order_key = waiting.order_key AND earlier.id < waiting.id AND earlier.finished_at IS NULL))
        AND NOT {BLOCKED}
    ORDER BY waiting.priority DESC, waiting.id
    LIMIT 1
)
RETURNING {COLUMNS}"""


_CLAIM = _claim_sql("")
_CLAIM_OF_SESSION = _claim_sql("AND waiting.session_id = ? AND waiting.status = 'pending'")
# "+ 0": SQLite would look for them among all rows to have them in the order of ids.
_CLAIMED = f"SELECT {COLUMNS} FROM commands WHERE {ACTIVE} ORDER BY id + 0"
_TAKE_OVER = "UPDATE commands SET owner = ?, updated_at = ? WHERE id = ? AND attempt = ? AND owner = ? AND " + ACTIVE
_REQUEUE = (
    "UPDATE commands SET owner = NULL, updated_at = ?"
    f" WHERE id = ? AND attempt = ? AND owner = ? AND status = 'pending' RETURNING {COLUMNS}"
)


class Queue(Table):
    """Claiming commands, and taking over or returning claims of dead owners."""

    def claim_next(self, owner: str, *, session_id: int | None = None) -> Command | None:
        """Claim a waiting command: highest priority, then oldest, whose key is below its limit."""
        with self._database.write() as transaction:
            transaction.lock("queue")
            now = self._now()
            if session_id is None:
                row = transaction.one(_CLAIM, (owner, now))
            else:
                row = transaction.one(_CLAIM_OF_SESSION, (owner, now, session_id))
        return None if row is None else command_from(row)

    def take_over(self, command_id: int, *, attempt: int, owner: str, new_owner: str) -> bool:
        """Change the owner of a claimed command whose owner is dead; False if it changed meanwhile."""
        with self._database.write() as transaction:
            return transaction.run(_TAKE_OVER, (new_owner, self._now(), command_id, attempt, owner)) == 1

    def requeue(self, command_id: int, *, attempt: int, owner: str) -> bool:
        """Return a claimed command that never started to the queue; False if it changed meanwhile.

        It keeps its position. If its cancellation was requested, it ends here as cancelled.
        """
        with self._database.write() as transaction:
            now = self._now()
            row = transaction.one(_REQUEUE, (now, command_id, attempt, owner))
            command = None if row is None else command_from(row)
            cancelled = command is not None and command.cancel_requested
            if cancelled:
                cancel_waiting(transaction, now, command_id)
        if command is not None and cancelled:
            self._notify(Notice(FINISHED, command.session_id, command_id))
        return command is not None

    def claimed(self) -> list[Command]:
        """Commands that have an owner and no terminal state."""
        return [command_from(row) for row in self._all(_CLAIMED)]

    def depth(self) -> int:
        """The number of waiting commands."""
        row = self._one(f"SELECT COUNT(*) FROM commands WHERE {WAITING}", ())
        return row[0] if row else 0
