"""Requests and replies of every operation; decoded and checked once, whatever the surface."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

_COMMIT = Field(min_length=1, max_length=255, validation_alias=AliasChoices("commit_sha", "commit"))
Identifier = Annotated[int, Field(ge=1, le=2**62)]
Text = Annotated[str, Field(max_length=131_071)]


class Request(BaseModel):
    """Unknown fields are refused: a typing error must not be ignored."""

    # Built when first used: sixty validators at import would be a fifth of the server's start.
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Reply(BaseModel):
    """A plain value on its way out."""

    model_config = ConfigDict(frozen=True, defer_build=True)


class Nothing(Request):
    """An operation without arguments."""


class Message(Reply):
    """A word of confirmation."""

    message: str


class Page(Request):
    """Part of a list: at most ``limit`` items after the cursor of the page before."""

    after: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


# -- repositories -------------------------------------------------------------------------------------------------


class RegisterRepository(Request):
    """A git remote by URL or local path."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    remote_url: Annotated[str, Field(min_length=1, max_length=4096)]
    default_branch: Annotated[str, Field(min_length=1, max_length=255)] = "main"
    description: Text | None = None
    settings: dict[str, Any] = Field(default_factory=dict)


class RepositoryName(Request):
    """One repository."""

    name: Annotated[str, Field(min_length=1, max_length=128)]


class RepositoryReply(Reply):
    """A registered repository."""

    id: int
    name: str
    remote_url: str
    default_branch: str
    description: str | None
    settings: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class RepositoryList(Reply):
    """All of them."""

    items: list[RepositoryReply]


# -- sessions -----------------------------------------------------------------------------------------------------


class OpenSession(Request):
    """Repository, commit and patch: a workspace is leased for them."""

    repository: Annotated[str, Field(min_length=1, max_length=128)]
    commit_sha: Annotated[str, _COMMIT]
    patch: Annotated[str, Field(max_length=16 << 20)] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    requested_by: Annotated[str, Field(max_length=255)] | None = None
    expires_in: Annotated[float, Field(ge=60, le=365 * 86400)] | None = None
    manifests: Annotated[list[Text], Field(max_length=64)] = Field(default_factory=list)
    python: Annotated[str, Field(max_length=64)] | None = None


class SessionId(Request):
    """One session."""

    session_id: Identifier


class ForkSession(SessionId):
    """As many new sessions from the current state."""

    count: Annotated[int, Field(ge=1, le=64)] = 1


class SessionReply(Reply):
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


class SessionList(Reply):
    """A page of sessions."""

    items: list[SessionReply]
    next_after: int | None


class SessionDiff(Reply):
    """What was changed, as a patch that applies to the session's commit."""

    session_id: int
    patch: str
    exact: bool  # False when the patch holds bytes that are not UTF-8; fetch it as bytes then


# -- commands -----------------------------------------------------------------------------------------------------


class LimitsRequest(Request):
    """Bounds on the whole process tree; left out means as configured."""

    memory_bytes: int | None = None
    cpus: float | None = None
    cpu_seconds: float | None = None
    pids: int | None = None
    open_files: int | None = None
    file_size_bytes: int | None = None
    output_bytes: int | None = None
    wall_seconds: Annotated[float | None, Field(validation_alias=AliasChoices("wall_seconds", "timeout"))] = None
    idle_seconds: float | None = None


class CommandRequest(Request):
    """What to run."""

    argv: Annotated[list[Text], Field(min_length=1, max_length=10_000)]
    cwd: Annotated[str, Field(max_length=4096)] | None = None
    env: dict[str, Text] = Field(default_factory=dict)
    log_name: Annotated[str, Field(max_length=128)] = "command"
    limits: LimitsRequest = Field(default_factory=LimitsRequest)
    require: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    artifacts: Annotated[list[Text], Field(max_length=64)] = Field(default_factory=list)
    tty: bool = False
    stdin: bool = False
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0


class SubmitCommand(CommandRequest):
    """A command for a session's queue."""

    session_id: Identifier


class CommandId(Request):
    """One command."""

    command_id: Identifier


class SignalCommand(CommandId):
    """A signal for its first process."""

    signal: Annotated[int, Field(ge=1, le=64)]


class WaitCommand(CommandId):
    """Wait for the end, up to a deadline."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 30.0


class WriteStdin(CommandId):
    """Input for the command; a repeated ``write_id`` is applied once."""

    write_id: Annotated[str, Field(min_length=1, max_length=128)]
    data: Annotated[str, Field(max_length=1 << 20)] = ""
    encoding: Annotated[str, Field(pattern="^(utf-8|base64)$")] = "utf-8"
    close: bool = False


class CommandReply(Reply):
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


class CommandList(Reply):
    """A session's commands by sequence."""

    items: list[CommandReply]


class SessionPage(Page):
    """Part of a session's list."""

    session_id: Identifier


class StartRun(CommandRequest):
    """Open, run and close in one request."""

    repository: Annotated[str, Field(min_length=1, max_length=128)]
    commit_sha: Annotated[str, _COMMIT]
    patch: Annotated[str, Field(max_length=16 << 20)] | None = None
    manifests: Annotated[list[Text], Field(max_length=64)] = Field(default_factory=list)
    python: Annotated[str, Field(max_length=64)] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class RunReply(Reply):
    """The session and the command of a run."""

    session: SessionReply
    command: CommandReply


# -- logs, artifacts, events --------------------------------------------------------------------------------------


class ReadLog(CommandId):
    """Bytes of a log from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=8 << 20)] = 1 << 16


class FollowLog(CommandId):
    """A log from an offset: history, then live, until the command has ended."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class FollowSession(SessionId):
    """The logs of all of a session's commands as one, from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class LogPiece(Reply):
    """Bytes of one stream at one offset."""

    offset: int
    stream: str
    data: bytes
    timestamp: datetime
    command_id: int


class LogPage(Reply):
    """What was read, and where to go on."""

    pieces: list[LogPiece]
    next_offset: int
    ended: bool


class ArtifactId(Request):
    """One artifact."""

    session_id: Identifier
    artifact_id: Identifier


class ArtifactReply(Reply):
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


class ArtifactList(Reply):
    """A session's artifacts."""

    items: list[ArtifactReply]


class ReadEvents(Page):
    """Events after a cursor."""

    session_id: Identifier | None = None
    command_id: Identifier | None = None
    kind: Annotated[str, Field(max_length=128)] | None = None


class EventReply(Reply):
    """A durable, numbered fact."""

    seq: int
    kind: str
    session_id: int | None
    command_id: int | None
    subject: str | None
    data: dict[str, Any]
    created_at: datetime


class EventList(Reply):
    """A page of events."""

    items: list[EventReply]
    next_after: int


# -- operators ----------------------------------------------------------------------------------------------------


class LeaseReply(Reply):
    """One workspace and who holds it."""

    id: int
    repository_id: int
    path: str
    status: str
    commit_sha: str | None
    owner: str | None
    expires_at: datetime | None


class LeaseList(Reply):
    """Every workspace."""

    items: list[LeaseReply]


class WorkerList(Reply):
    """Supervised long-lived processes."""

    items: list[dict[str, Any]]


class CreateToken(Request):
    """A new access token."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    scopes: Annotated[list[str], Field(max_length=16)] = Field(
        default_factory=lambda: ["sessions:read", "sessions:write"]
    )
    expires_in: Annotated[float, Field(gt=0, le=3650 * 86400)] | None = None
    quotas: dict[str, Any] = Field(default_factory=dict)


class TokenId(Request):
    """One token."""

    token_id: Identifier


class TokenReply(Reply):
    """A token; ``token`` is the secret, shown once, when it is made."""

    id: int
    name: str
    scopes: list[str]
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime
    token: str | None = None


class TokenList(Reply):
    """Every token, without secrets."""

    items: list[TokenReply]


class WhoAmI(Reply):
    """The caller as the server sees it."""

    token_id: int | None
    name: str
    scopes: list[str]


class Health(Reply):
    """What was checked just now."""

    ok: bool
    message: str
    checks: dict[str, str]


class DebugAction(SessionId):
    """For a debugger of the session."""

    action: Annotated[str, Field(max_length=64)] = "open"
    payload: dict[str, Any] = Field(default_factory=dict)
