"""The schedules table: when each schedule is next due."""

from __future__ import annotations

from datetime import datetime

from debug_server.model import DueTime, Schedule
from debug_server.store.connection import Transaction
from debug_server.store.encoding import epoch, moment
from debug_server.store.table import Table

_TAKE = "UPDATE schedules SET next_at = ?, updated_at = ? WHERE name = ? AND next_at = ?"


def claim(transaction: Transaction, now: float, due: DueTime) -> bool:
    """Claim a due time in the transaction of its action, and set the next one; False if it is already claimed.

    Other processes wait for the end of this transaction; after a rollback one of them claims the time.
    """
    return transaction.run(_TAKE, (epoch(due.next_at), now, due.schedule, epoch(due.since))) == 1


class Schedules(Table):
    """Declaring schedules."""

    def set(self, name: str, rule: str, next_at: datetime) -> None:
        """Declare a schedule; with an unchanged rule it keeps its time, so that a missed run is made up."""
        with self._database.write() as transaction:
            transaction.run(
                "INSERT INTO schedules (name, rule, next_at, updated_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, next_at = excluded.next_at,"
                " updated_at = excluded.updated_at WHERE schedules.rule <> excluded.rule",
                (name, rule, epoch(next_at), self._now()),
            )

    def all(self) -> list[Schedule]:
        """All schedules, by name."""
        rows = self._all("SELECT name, rule, next_at FROM schedules ORDER BY name")
        return [Schedule(name=name, rule=rule, next_at=moment(next_at)) for name, rule, next_at in rows]

    def drop(self, name: str) -> None:
        """Remove a schedule that is no longer declared."""
        with self._database.write() as transaction:
            transaction.run("DELETE FROM schedules WHERE name = ?", (name,))
