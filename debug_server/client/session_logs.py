"""A session's logs as one stream: the complete logs of its commands, by sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.messages import LogPiece

T = TypeVar("T")


class LogSource(Protocol):
    """A client that lists commands and reads their logs."""

    def send(self, call: Call[T]) -> T:
        """Perform one operation."""

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset to its current end."""


def session_pieces(source: LogSource, session_id: int, *, follow: bool) -> Iterator[LogPiece]:
    """The log of every command; with ``follow`` until all commands of the session have ended."""
    last = 0
    while fresh := source.send(calls.list_commands(session_id, after=last)).items:
        for command in fresh:
            yield from source.follow_log(command.id) if follow else source.stored_log(command.id)
        last = fresh[-1].sequence
