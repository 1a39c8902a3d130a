"""The port between the store's SQL and a database driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Transaction(Protocol):
    """Runs statements written with ``?``; a driver error leaves it as one of ours."""

    def one(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        """The first row, if any."""

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """Every row."""

    def run(self, sql: str, params: Sequence[Any] = ()) -> int:
        """How many rows the statement touched."""

    def lock(self, name: str) -> None:
        """Let the writers that name the same lock follow one another until the end of the transaction."""


class Database(Protocol):
    """One database; safe to share between threads."""

    @property
    def address(self) -> str:
        """Where it is, for messages: never holds a password."""

    @property
    def reads_at_once(self) -> bool:
        """Whether reading one row neither waits for anybody nor crosses a network."""

    @property
    def types(self) -> Mapping[str, str]:
        """What the names in the schema's braces mean here."""

    def write(self) -> AbstractContextManager[Transaction]:
        """A transaction: committed at the end of the block, rolled back when the block raises."""

    def read(self) -> AbstractContextManager[Transaction]:
        """Statements that only read, each on what is committed when it starts."""

    def keep_reserve(self) -> None:
        """Set space aside for the time when the disk is full, where the disk is ours."""

    def close(self) -> None:
        """Close every connection."""
