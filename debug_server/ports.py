"""The few Protocols that have more than one implementation; standard library and ``model`` only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, Unpack

from debug_server.model import Artifact, ArtifactKind, Command, CommandStatus, ExitRecord, NewCommand, Session


class SessionRows(Protocol):
    """The sessions that commands belong to."""

    def get(self, session_id: int) -> Session:
        """The row, or NotFoundError."""


class CommandRows(Protocol):
    """Commands, from pending to a terminal state."""

    def add(self, *, session_id: int, **asked: Unpack[NewCommand]) -> Command:
        """Insert a pending command; with ``claim_owner`` it is claimed at once (attempt 1)."""

    def get(self, command_id: int) -> Command:
        """The row, or NotFoundError."""

    def cancel_requested(self, command_id: int) -> bool:
        """Whether its end was requested; NotFoundError without a row."""

    def in_session(self, session_id: int, *, status: CommandStatus | None = None) -> list[Command]:
        """A session's commands by sequence."""

    def inputs(self, command_id: int) -> tuple[dict[str, str], str | None]:
        """The unsealed environment and stdin of a command that has not ended; ConflictError after its end."""

    def handle(self, command_id: int) -> dict[str, Any] | None:
        """The keeper's handle as it was recorded at the start."""

    def start(self, command_id: int, *, attempt: int, owner: str, handle: Mapping[str, Any], log_path: str) -> Command:
        """pending -> running, if (id, attempt, owner) still match; else ConflictError."""

    def finish(
        self,
        command_id: int,
        *,
        attempt: int,
        owner: str,
        record: ExitRecord,
        log_path: str | None = None,
        handle: Mapping[str, Any] | None = None,
    ) -> Command:
        """Set the one terminal state and the log artifact, if (id, attempt, owner) still match; else ConflictError.

        With ``handle`` the start is recorded too, for a command that ended before it was marked as running.
        """

    def request_cancel(self, command_id: int) -> Command:
        """Cancel a waiting command; mark a claimed one."""


class QueueRows(Protocol):
    """The queue of commands, and their owners."""

    def claim_next(self, owner: str, *, session_id: int | None = None) -> Command | None:
        """Claim a waiting command: highest priority, then oldest, whose key is below its limit."""

    def take_over(self, command_id: int, *, attempt: int, owner: str, new_owner: str) -> bool:
        """Change the owner of a claimed command whose owner is dead; False if it changed meanwhile."""

    def requeue(self, command_id: int, *, attempt: int, owner: str) -> bool:
        """Return a claimed command that never started to the queue."""

    def claimed(self) -> list[Command]:
        """Commands that have an owner and no terminal state."""

    def depth(self) -> int:
        """The number of waiting commands."""


class ArtifactRows(Protocol):
    """Files kept from commands."""

    def add(
        self,
        *,
        session_id: int,
        command_id: int | None,
        kind: ArtifactKind,
        name: str,
        path: str,
        size: int | None = None,
        sha256: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Record a file that a command left."""


class EventRows(Protocol):
    """Durable events."""

    def append(
        self,
        kind: str,
        *,
        session_id: int | None = None,
        command_id: int | None = None,
        subject: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> int:
        """Append a durable event and return its number."""


class CommandStore(Protocol):
    """The part of the metadata store that running a command needs."""

    @property
    def sessions(self) -> SessionRows:
        """The sessions."""

    @property
    def commands(self) -> CommandRows:
        """The commands."""

    @property
    def queue(self) -> QueueRows:
        """The queue."""

    @property
    def artifacts(self) -> ArtifactRows:
        """The artifacts."""

    @property
    def events(self) -> EventRows:
        """The events."""


class Telemetry(Protocol):
    """Metrics and traces; implemented by a null, a Prometheus and an OpenTelemetry version."""

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add to a histogram."""

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """A traced section."""


class Lease(Protocol):
    """A leased workspace: any object with ``path``; ``needs_dependency_sync`` is optional."""

    @property
    def path(self) -> Any:
        """The workspace's directory."""


class LogSink(Protocol):
    """Receives messages of the stages before the start, for the command's log."""

    def write(self, text: str, stream: str = "system") -> Any:
        """Append text."""


class Part(Protocol):
    """A part of the server: its routes, gRPC services, lifetime and health."""

    @property
    def name(self) -> str:
        """One word; its key in ``/readyz``."""

    def routes(self) -> Sequence[Any]:
        """Its ASGI routes, HTTP and WebSocket."""

    def grpc_services(self) -> Mapping[str, Any]:
        """Its generic gRPC handlers by full service name; called in a thread, because imports may be slow."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Its lifetime: entered before the first request, left after the last."""

    def drain(self) -> None:
        """Shutdown begins: take no new work, finish what is running. Called once, in the server's loop."""

    async def drained(self) -> None:
        """Return when that is finished, within the part's own deadline; the server answers until then."""

    def health(self) -> Mapping[str, Any]:
        """Its part of ``/healthz``.

        ``degraded`` is a sentence about what needs an operator; it makes ``ok`` false.
        """

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """``ok`` or the reason why ``/readyz`` fails, and details."""

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """``ok`` or the reason why ``/livez`` fails, and details."""
