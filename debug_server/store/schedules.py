"""The schedules table: when each is next due, and which of its times was taken but perhaps not acted on."""

from __future__ import annotations

from datetime import datetime

from debug_server.model import Schedule
from debug_server.store.connection import Row
from debug_server.store.encoding import epoch, moment, optional_moment
from debug_server.store.part import StorePart

_COLUMNS = "name, rule, next_at, owed_at"


class Schedules(StorePart):
    """Declaring schedules and taking their times, each by one process only."""

    def set_schedule(self, name: str, rule: str, next_at: datetime) -> None:
        """Declare a schedule; one with the same rule keeps its times, so that what was missed is caught up."""
        with self._database.write() as transaction:
            transaction.run(
                "INSERT INTO schedules (name, rule, next_at, updated_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET rule = excluded.rule, next_at = excluded.next_at,"
                " updated_at = excluded.updated_at WHERE schedules.rule <> excluded.rule",
                (name, rule, epoch(next_at), self._now()),
            )

    def list_schedules(self) -> list[Schedule]:
        """By name."""
        return [_schedule(row) for row in self._all(f"SELECT {_COLUMNS} FROM schedules ORDER BY name")]

    def take_due(self, schedule: Schedule, *, owed_at: datetime, next_at: datetime) -> bool:
        """Note that its time ``owed_at`` is being acted on and when it is due next; False if another process did."""
        with self._database.write() as transaction:
            changed = transaction.run(
                "UPDATE schedules SET owed_at = ?, next_at = ?, updated_at = ? WHERE name = ? AND next_at = ?",
                (epoch(owed_at), epoch(next_at), self._now(), schedule.name, epoch(schedule.next_at)),
            )
        return changed == 1

    def settle_due(self, name: str, owed_at: datetime) -> None:
        """What was owed for this time is done."""
        with self._database.write() as transaction:
            transaction.run(
                "UPDATE schedules SET owed_at = NULL WHERE name = ? AND owed_at = ?", (name, epoch(owed_at))
            )

    def drop_schedule(self, name: str) -> None:
        """Nobody declares it any more."""
        with self._database.write() as transaction:
            transaction.run("DELETE FROM schedules WHERE name = ?", (name,))


def _schedule(row: Row) -> Schedule:
    return Schedule(name=row[0], rule=row[1], next_at=moment(row[2]), owed_at=optional_moment(row[3]))
