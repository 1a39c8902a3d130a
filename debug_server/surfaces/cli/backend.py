"""The port through which commands are performed: by the service in this process, or by a server over the SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from debug_server.client.calls import Call
from debug_server.client.connection import ServerSettings
from debug_server.messages import CommandReply, EventReply, LogPiece
from debug_server.surfaces.cli.parts import OpenLocal

T = TypeVar("T")


class Backend(Protocol):
    """Performs operations, follows logs and events, and downloads files."""

    @property
    def place(self) -> str:
        """The server's address or this machine, for messages."""

    @property
    def is_here(self) -> bool:
        """Whether it works on this machine, and so reads the same paths."""

    def send(self, call: Call[T]) -> T:
        """Perform one operation."""

    def send_from_thread(self, call: Call[T]) -> T:
        """Perform one operation in another thread, while the backend's own follows a log."""

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset to its current end."""

    def follow_events(
        self, *, after: int, session_id: int | None, command_id: int | None, kind: str | None
    ) -> Iterator[EventReply]:
        """Events after a cursor, then new ones."""

    def download(self, session_id: int, artifact_id: int, target: Path, *, replace: bool) -> None:
        """Write an artifact's bytes to a file; without ``replace``, the file must not exist."""

    def ensure_started(self, command: CommandReply) -> CommandReply:
        """Give a submitted command time to start if it runs in this process; returns its current state."""

    def close(self) -> None:
        """Close the backend; running commands continue."""

    def __enter__(self) -> Backend: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_backend(settings: ServerSettings, open_local: OpenLocal) -> Backend:
    """Open the configured server, or this machine if there is none."""
    if settings.server is None:
        from debug_server.surfaces.cli.local_backend import LocalBackend

        return LocalBackend(open_local)
    from debug_server.surfaces.cli.remote_backend import RemoteBackend

    return RemoteBackend(
        settings.server, settings.token, verify_tls=settings.verify_tls, server_uid=settings.server_uid
    )
