"""The other rows of the store, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from debug_server.model.command import Command
from debug_server.model.plans import SessionPlan


class WorktreeStatus(StrEnum):
    """The state of a workspace."""

    IDLE = "idle"
    RESERVED = "reserved"  # leased, being prepared
    BUSY = "busy"  # leased and in use


class SessionStatus(StrEnum):
    """The state of a session."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ArtifactKind(StrEnum):
    """What an artifact is."""

    LOG = "log"
    COVERAGE = "coverage"
    JUNIT = "junit"
    CORE_DUMP = "core-dump"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A registered git remote."""

    id: int
    name: str
    remote_url: str
    default_branch: str
    description: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """One workspace of the pool and, while leased, who holds it."""

    id: int
    repository_id: int
    path: str
    status: WorktreeStatus
    commit_sha: str | None
    environment_hash: str | None
    owner: str | None
    lease_token: str | None
    generation: int  # each lease adds one; a holder with an older number can change nothing
    lease_expires_at: datetime | None
    process: str | None = None  # owner name of the process that holds the lease; None: it ends only by expiry
    backend: str  # overlay or pool
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """The result of removing a session's directory."""

    attempted: bool = True
    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A workspace or directory, and the commands run in it."""

    id: int
    repository_id: int | None
    worktree_id: int | None
    status: SessionStatus
    commit_sha: str | None
    patch_hash: str | None
    requested_by: str | None
    owner_token_id: int | None  # the token that opened it; None for a local caller
    expires_at: datetime | None
    plan: SessionPlan = field(default_factory=SessionPlan)
    lease_generation: int | None = None  # of the session's lease of ``worktree_id``
    cleanup: Cleanup | None = None  # of its own directory, when it was closed
    idempotency_key: str | None = None  # of the request that opened it
    metadata: dict[str, Any] = field(default_factory=dict)  # the caller's
    created_at: datetime
    updated_at: datetime

    @property
    def is_open(self) -> bool:
        """Whether commands may still run in it."""
        return self.status in (SessionStatus.PENDING, SessionStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file kept from a command."""

    id: int
    session_id: int
    command_id: int | None
    kind: ArtifactKind
    name: str
    path: str
    size: int | None
    sha256: str | None
    content_type: str | None
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token; the secret itself is shown once and stored only as a hash."""

    id: int
    name: str
    scopes: tuple[str, ...]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    quotas: dict[str, Any] = field(default_factory=dict)
    created_at: datetime


class Notice(NamedTuple):
    """A notice of a new event for waiting threads; the event itself is in the store."""

    kind: str
    session_id: int | None = None
    command_id: int | None = None
    waits: bool = False  # whether that command waits to be claimed
    ended: Command | None = None  # that command, if the event is its end


class EventHead(NamedTuple):
    """What an event is about, for readers of many events that need no more."""

    seq: int
    kind: str
    session_id: int | None
    command_id: int | None
    subject: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A durable, numbered fact."""

    seq: int
    kind: str  # for example command.finished
    session_id: int | None
    command_id: int | None
    subject: str | None  # what else it is about: a worker, a repository, a task
    data: dict[str, Any] = field(default_factory=dict)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event about a subject, without its number."""

    kind: str
    subject: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebuggerState:
    """A debugger tunnel of one session."""

    id: int
    session_id: int
    kind: str
    host: str
    port: int
    status: str
    data: dict[str, Any] = field(default_factory=dict)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A repeating schedule."""

    name: str
    rule: str  # as written in the configuration, with its time zone
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """A due time of a schedule; one process claims it, in the commit of its action."""

    schedule: str
    moment: datetime  # the last of the missed times
    since: datetime  # the row's due time; if the row has another value, another process has claimed it
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message that must leave the server, kept until it is delivered or given up."""

    id: int
    topic: str
    lane: int  # messages of one lane are sent in order
    data: dict[str, Any] = field(default_factory=dict)
    attempts: int
    due_at: datetime
    created_at: datetime
