"""What the server answers, as plain frozen values: one class for each reply of the service, field by field the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[T]):
    """A page of a list; it can be iterated itself. ``next_after`` is the next page's ``after``, None on the last."""

    items: list[T]

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A word of confirmation."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryReply:
    """A registered repository."""

    id: int
    name: str
    remote_url: str
    default_branch: str
    description: str | None
    settings: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryList(Items[RepositoryReply]):
    """A page of repositories."""

    items: list[RepositoryReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReply:
    """A session."""

    id: int
    session_id: int
    repository_id: int | None
    worktree_id: int | None
    status: str
    commit_sha: str | None
    patch_hash: str | None
    requested_by: str | None
    expires_at: datetime | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionList(Items[SessionReply]):
    """A page of sessions."""

    items: list[SessionReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDiff:
    """What was changed, as a patch; ``exact`` is False when it holds bytes that are not UTF-8."""

    session_id: int
    patch: str
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """A command, and its exit record once it has ended."""

    id: int
    session_id: int
    sequence: int
    command: list[str]
    cwd: str | None
    status: str
    exit_code: int | None
    exit_reason: str | None
    exit: dict[str, Any] | None
    cancel_requested: bool
    log_bytes: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def ended(self) -> bool:
        """Whether it has reached its one terminal state."""
        return self.status not in ("pending", "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandList(Items[CommandReply]):
    """A page of a session's commands, by sequence."""

    items: list[CommandReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReply:
    """The session and the command of a run."""

    session: SessionReply
    command: CommandReply


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Bytes of one stream at one offset."""

    offset: int
    stream: str
    data: bytes
    timestamp: datetime
    command_id: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """What was read, and where to go on."""

    pieces: list[LogPiece]
    next_offset: int
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactReply:
    """A file that a command left."""

    id: int
    session_id: int
    command_id: int | None
    kind: str
    name: str
    size: int | None
    sha256: str | None
    content_type: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactList(Items[ArtifactReply]):
    """A page of a session's artifacts."""

    items: list[ArtifactReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReply:
    """A durable, numbered fact."""

    seq: int
    kind: str
    session_id: int | None
    command_id: int | None
    subject: str | None
    data: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList(Items[EventReply]):
    """A page of events."""

    items: list[EventReply]
    next_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReply:
    """One workspace and who holds it."""

    id: int
    repository_id: int
    path: str
    status: str
    commit_sha: str | None
    owner: str | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseList(Items[LeaseReply]):
    """A page of workspaces."""

    items: list[LeaseReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList(Items[dict[str, Any]]):
    """A page of supervised long-lived processes."""

    items: list[dict[str, Any]]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReply:
    """A token; ``token`` is the secret, shown once, when it is made."""

    id: int
    name: str
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    quotas: dict[str, int | float]
    created_at: datetime
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenList(Items[TokenReply]):
    """A page of tokens, without secrets."""

    items: list[TokenReply]
    next_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI:
    """The caller as the server sees it."""

    token_id: int | None
    name: str
    scopes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was checked just now."""

    ok: bool
    message: str
    checks: dict[str, str]
