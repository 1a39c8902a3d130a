"""Migrates a database to the current schema version, or back to an older one."""

from __future__ import annotations

from debug_server.errors import InvalidInputError, StoreUnavailableError
from debug_server.store.connection import Database, Transaction
from debug_server.store.schema import MIGRATIONS, Migration, Step

LATEST = MIGRATIONS[-1].version


def migrate(database: Database, target: int = LATEST) -> None:
    """Apply the steps between the database's version and ``target``, all of them or none.

    Processes that open a database at the same time run one after the other; only the first changes it.
    """
    if not 0 <= target <= LATEST:
        raise InvalidInputError(f"schema version {target} does not exist: use 0 to {LATEST}")
    with database.write() as transaction:
        transaction.lock("schema")
        current = schema_version(transaction)
        if current > LATEST:
            raise StoreUnavailableError(
                f"the database {database.address} has schema version {current}, this program supports {LATEST}: "
                "upgrade debug-server or use another database"
            )
        if current != target:
            for step in _steps(current, target):
                if isinstance(step, str):
                    transaction.run(step.format_map(database.types))
                else:
                    step(transaction)
            transaction.run(
                "INSERT INTO schema_version (id, version) VALUES (1, ?)"
                " ON CONFLICT (id) DO UPDATE SET version = excluded.version",
                (target,),
            )


def schema_version(transaction: Transaction) -> int:
    """The version of the database, 0 for a new one."""
    transaction.run("CREATE TABLE IF NOT EXISTS schema_version (id INTEGER PRIMARY KEY, version BIGINT NOT NULL)")
    row = transaction.one("SELECT version FROM schema_version")
    return row[0] if row else 0


def _steps(current: int, target: int) -> list[Step]:
    def between(low: int, high: int) -> list[Migration]:
        return [migration for migration in MIGRATIONS if low < migration.version <= high]

    if target > current:
        return [step for migration in between(current, target) for step in migration.up]
    return [step for migration in reversed(between(target, current)) for step in migration.down]
