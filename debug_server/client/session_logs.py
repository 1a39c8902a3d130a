"""A session's logs as one stream: its commands by sequence, each from its first byte to its last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from debug_server.client import calls
from debug_server.client.calls import Call
from debug_server.messages import LogPiece

T = TypeVar("T")


class LogSource(Protocol):
    """Whoever can be asked for commands and their logs."""

    def send(self, call: Call[T]) -> T:
        """Do one operation."""

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset as far as it goes now."""


def session_pieces(source: LogSource, session_id: int, *, follow: bool) -> Iterator[LogPiece]:
    """Every command's log; with ``follow`` until all commands that the session has by then have ended."""
    last = 0
    while fresh := source.send(calls.list_commands(session_id, after=last)).items:
        for command in fresh:
            yield from source.follow_log(command.id) if follow else source.stored_log(command.id)
        last = fresh[-1].sequence
