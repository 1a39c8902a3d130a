"""Repositories and sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from debug_server.messages.base import (
    COMMIT,
    DEFAULT_COMMIT,
    EXTRAS,
    GROUPS,
    MANIFESTS,
    PATCH,
    PATCH_BASE64,
    PYTHON,
    REPOSITORY,
    SEPARATED,
    Base64,
    CommitRequest,
    DependencyNames,
    Items,
    ListRequest,
    Metadata,
    Reply,
    Request,
    SessionId,
    Text,
)

ShellText = Annotated[str, Field(min_length=1, max_length=131_071)]  # a command line for runner.default_shell


class RegisterRepository(Request):
    """A git remote by URL or local path."""

    name: Annotated[str, REPOSITORY]
    remote_url: Annotated[
        str, Field(min_length=1, max_length=4096, description="A URL, or a path on the server's machine.")
    ]
    default_branch: Annotated[
        str | None, Field(min_length=1, max_length=255, description="Default: the remote's own, or main.")
    ] = None
    description: Annotated[Text | None, Field(description="What it is, for people.")] = None
    settings: Annotated[dict[str, Any], Field(description="Such as submodules: true.")] = Field(default_factory=dict)


class RepositoryRef(Request):
    """One repository."""

    name: Annotated[str, REPOSITORY]


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


class RepositoryList(Items[RepositoryReply]):
    """A page of repositories."""


class OpenSession(CommitRequest):
    """The repository, commit and patch of the workspace to lease."""

    repository: Annotated[str, REPOSITORY]
    commit_sha: Annotated[str, COMMIT] = DEFAULT_COMMIT
    patch: Annotated[str | None, PATCH] = None
    patch_base64: Annotated[Base64 | None, PATCH_BASE64] = None
    metadata: Metadata = Field(default_factory=dict)
    requested_by: Annotated[str | None, Field(max_length=255, description="Who asks; default: the token's name.")] = (
        None
    )
    expires_in: Annotated[
        float | None, Field(ge=60, le=365 * 86400, description="Close the session after so many seconds.")
    ] = None
    manifests: Annotated[list[Text], MANIFESTS] = Field(default_factory=list)
    python: Annotated[str | None, PYTHON] = None
    extras: Annotated[DependencyNames, EXTRAS] = Field(default_factory=list)
    groups: Annotated[DependencyNames, GROUPS] = Field(default_factory=list)
    commands: Annotated[
        list[ShellText], Field(max_length=100, description="Command lines for the server's shell, queued in order.")
    ] = Field(default_factory=list)
    env: Annotated[dict[str, Text], Field(description="Variables of these commands.")] = Field(default_factory=dict)
    cwd: Annotated[str | None, Field(max_length=4096, description="Folder of these commands.")] = None


class SessionRef(Request):
    """One session."""

    session_id: SessionId


class ForkSession(SessionRef):
    """Open ``count`` copies of a session."""

    count: Annotated[int, Field(ge=1, le=64, description="Number of copies.")] = 1


# ``open`` is pending or running; ``closed`` is completed, failed or cancelled.
ListStatus = Literal["pending", "running", "completed", "failed", "cancelled", "open", "closed"]


class ListSessions(ListRequest):
    """Which sessions to list."""

    status: Annotated[
        list[ListStatus], SEPARATED, Field(max_length=16, description="Only sessions in one of these states.")
    ] = Field(default_factory=list)
    repository: Annotated[str | None, REPOSITORY] = None


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

    @property
    def is_open(self) -> bool:
        """Whether commands can be added; ``status`` says whether one has run, or how the session ended."""
        return self.status in ("pending", "running")


class SessionList(Items[SessionReply]):
    """A page of sessions."""


class SessionDiff(Reply):
    """The changes as a patch that applies to the session's commit."""

    session_id: int
    patch: str
    exact: bool  # False when the patch holds bytes that are not UTF-8, which ``patch`` replaces
    patch_base64: Base64 | None = None  # then: the exact patch
