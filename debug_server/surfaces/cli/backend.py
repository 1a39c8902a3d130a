"""What the commands ask of whoever does the work: the service in this process, or a server over the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from debug_server.client.calls import Call
from debug_server.messages import CommandReply, EventReply, LogPiece
from debug_server.surfaces.cli.connection import Connection
from debug_server.surfaces.cli.parts import OpenLocal

T = TypeVar("T")


class Backend(Protocol):
    """Every operation, and the few that stream or hold bytes."""

    @property
    def place(self) -> str:
        """Where the work is done, for people."""

    def send(self, call: Call[T]) -> T:
        """Do one operation."""

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset as far as it goes now."""

    def follow_events(
        self, *, after: int, session_id: int | None, command_id: int | None, kind: str | None
    ) -> Iterator[EventReply]:
        """Events after a cursor, then live."""

    def download(self, session_id: int, artifact_id: int, target: Path, *, replace: bool) -> None:
        """An artifact's bytes into a file; with ``replace`` instead of what is there."""

    def leave(self, command: CommandReply) -> CommandReply:
        """Go away from a command that was just submitted; returns it as it is now."""

    def close(self) -> None:
        """Let go; what runs goes on."""

    def __enter__(self) -> Backend: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_backend(connection: Connection, open_local: OpenLocal) -> Backend:
    """The server that is configured, or else this machine."""
    if connection.server is None:
        from debug_server.surfaces.cli.local_backend import LocalBackend

        return LocalBackend(open_local)
    from debug_server.surfaces.cli.remote_backend import RemoteBackend

    return RemoteBackend(
        connection.server, connection.token, verify_tls=connection.verify_tls, server_uid=connection.server_uid
    )
