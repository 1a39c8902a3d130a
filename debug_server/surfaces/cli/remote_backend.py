"""A server, over the SDK."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from debug_server.client.calls import Call
    from debug_server.messages import CommandReply, EventReply, LogPiece

# httpx imports its own command line if click and rich are installed, which takes a quarter of a second.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

from debug_server.client.connection import is_loopback  # noqa: E402
from debug_server.client.sync import DebugServerClient  # noqa: E402

T = TypeVar("T")


class RemoteBackend:
    """Sends every operation to one server."""

    def __init__(self, base_url: str, token: str | None, *, verify_tls: bool, server_uid: int | None) -> None:
        self._client = DebugServerClient(
            base_url=base_url, token=token or "", verify_tls=verify_tls, server_uid=server_uid
        )
        self.place = base_url
        self.is_here = is_loopback(base_url)

    def send(self, call: Call[T]) -> T:
        """Perform one operation."""
        return self._client.send(call)

    def send_from_thread(self, call: Call[T]) -> T:
        """Perform one operation in another thread."""
        return self._client.send(call)

    def follow_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset until the command has ended."""
        return self._client.follow_log(command_id, offset=offset)

    def stored_log(self, command_id: int, *, offset: int = 0) -> Iterator[LogPiece]:
        """A log from an offset to its current end."""
        return self._client.stored_log(command_id, offset=offset)

    def follow_events(
        self, *, after: int, session_id: int | None, command_id: int | None, kind: str | None
    ) -> Iterator[EventReply]:
        """Events after a cursor, then new ones."""
        return self._client.follow_events(after=after, session_id=session_id, command_id=command_id, kind=kind)

    def download(self, session_id: int, artifact_id: int, target: Path, *, replace: bool) -> None:
        """Write an artifact's bytes to a file; without ``replace``, the file must not exist."""
        self._client.download_artifact(session_id, artifact_id, target, replace=replace)

    def ensure_started(self, command: CommandReply) -> CommandReply:
        """Nothing to do: the server starts it."""
        return command

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def __enter__(self) -> RemoteBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
