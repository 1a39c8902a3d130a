"""A session's logs as one stream: the complete logs of its commands, by sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.messages import CommandReply, LogPiece

T = TypeVar("T")


class LogSource(Protocol):
    """A client that lists commands and reads their logs."""

    def send(self, call: Call[T]) -> T:
        """Perform one operation."""

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset to its current end."""


def session_commands(source: LogSource, session_id: int) -> Iterator[CommandReply]:
    """Every command of a session, by sequence."""
    last = 0
    while fresh := source.send(calls.list_commands(session_id, after=last)).items:
        yield from fresh
        last = fresh[-1].sequence


def session_pieces(
    source: LogSource, session_id: int, *, follow: bool, start: Callable[[int], int] = lambda _: 0
) -> Iterator[LogPiece]:
    """The log of every command from ``start`` of its id; with ``follow`` until all commands have ended."""
    read = source.follow_log if follow else source.stored_log
    for command in session_commands(source, session_id):
        yield from read(command.id, offset=start(command.id))
