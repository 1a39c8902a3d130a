"""The port between the store's SQL and a database driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Transaction(Protocol):
    """Runs statements written with ``?``; errors of the driver are translated to ``debug_server.errors``."""

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        """The first row, if any."""

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Every row."""

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """The number of affected rows."""

    def lock(self, name: str) -> None:
        """Hold a named lock until the end of the transaction; other writers of that name wait."""


class Database(Protocol):
    """One database; safe to share between threads."""

    @property
    def address(self) -> str:
        """The location for messages, without a password."""

    @property
    def reads_in_event_loop(self) -> bool:
        """Whether reading a row needs neither a lock nor a network."""

    @property
    def types(self) -> Mapping[str, str]:
        """The column types behind the names in braces in the schema."""

    def write(self) -> AbstractContextManager[Transaction]:
        """A transaction: committed at the end of the block, rolled back when the block raises."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Read-only statements; each sees what is committed when it starts."""

    def keep_reserve(self) -> None:
        """Reserve disk space for writes on a full disk, if the database is on this machine."""

    def close(self) -> None:
        """Close every connection."""
