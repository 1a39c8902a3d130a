"""Base of the store's members: database, sealing key, clock, and listeners for new events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from debug_server.errors import ConflictError, NotFoundError
from debug_server.model import Notice
from debug_server.store.connection import Database, Row, Transaction
from debug_server.store.encoding import epoch
from debug_server.store.sealing import Sealer


class Listeners:
    """Callbacks for new events of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Callable[[Notice], None], ...] = ()

    def add(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Call ``listener`` with each notice until the returned function is called."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(item for item in self._listeners if item is not listener)

        return remove

    def notify(self, notice: Notice) -> None:
        """Call every listener."""
        for listener in self._listeners:
            listener(notice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the members of one store share."""

    database: Database
    sealer: Sealer
    clock: Callable[[], datetime]
    listeners: Listeners = field(default_factory=Listeners)


class Table:
    """Base of the store's members: reading rows, the clock, and notifying listeners."""

    def __init__(self, shared: Shared) -> None:
        self._database = shared.database
        self._sealer = shared.sealer
        self._clock = shared.clock
        self._listeners = shared.listeners

    def _now(self) -> float:
        return epoch(self._clock())

    def _notify(self, notice: Notice) -> None:
        """Called after the commit of a transaction that appended an event."""
        self._listeners.notify(notice)

    def _one(self, sql: str, params: tuple[object, ...]) -> Row | None:
        with self._database.read() as reader:
            return reader.one(sql, params)

    def _all(self, sql: str, params: tuple[object, ...] = ()) -> list[Row]:
        with self._database.read() as reader:
            return reader.all(sql, params)


ALL_ROWS = 2**62  # as the limit of a list: all rows
Terms = tuple[object, ...]  # SQL, then its parameters


def require_row(row: Row | None, what: str, key: object) -> Row:
    """The row, or NotFoundError that names it."""
    if row is None:
        raise NotFoundError(f"there is no {what} {key!r}", what=what)
    return row


def require(transaction: Transaction, table: str, what: str, key: int | None) -> None:
    """NotFoundError unless ``key`` is None or names a row of ``table``."""
    if key is not None:
        require_row(transaction.one(f"SELECT 1 FROM {table} WHERE id = ?", (key,)), what, key)


def require_registered(transaction: Transaction, repository_id: int | None) -> None:
    """ConflictError if the repository was removed.

    Checked after the insert of a row that refers to it: where several transactions may write at once, the foreign key
    then holds the repository's row, and a removal waits.
    """
    if repository_id is None:
        return
    row = transaction.one("SELECT name, removed_at FROM repositories WHERE id = ?", (repository_id,))
    if row is not None and row[1] is not None:
        raise ConflictError(f"the repository {row[0]} cannot be used: register it again")


def keyset(column: str, after: int, *, newest: bool) -> tuple[Terms, str]:
    """The term for ``filters`` of the rows after a cursor, and their order; 0 begins at the first of either order."""
    if newest:
        return (f"{column} < ?", after or ALL_ROWS + 1), f"ORDER BY {column} DESC"
    return (f"{column} > ?", after), f"ORDER BY {column}"


def page_of(column: str, value: object, beyond: Terms, *, newest: bool) -> tuple[Terms, str]:
    """The terms for ``filters`` of the rows with a value whose id is beyond another one, and their order.

    ``column`` is in the order, and its value is a bound, not one that it equals: so only the index that begins with it
    and the id has the order. PostgreSQL might otherwise look for them in the whole table, in the order of ids, because
    it does not know that the rows with this value are far from where it begins.
    """
    sql, *params = beyond
    direction, bound, order = ("<", ">=", " DESC") if newest else (">", "<=", "")
    terms = f"{column} {bound} ? AND ({column}, id) {direction} (?, {sql})"
    return (terms, value, value, *params), f"ORDER BY {column}{order}, id{order}"


def filters(*terms: Terms) -> tuple[str, tuple[object, ...]]:
    """A WHERE clause of the terms (SQL, then its parameters) whose parameters are not None."""
    asked = [term for term in terms if term[1] is not None]
    return " AND ".join(str(term[0]) for term in asked), tuple(value for term in asked for value in term[1:])
