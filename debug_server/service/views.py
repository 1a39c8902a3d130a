"""From rows to replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from debug_server import messages as m
from debug_server.model import Artifact, Command, Event, Repository, Session, Token, Worktree

T = TypeVar("T")
# Key of a session's metadata: the caller's own. The other names are facts that the engine acts upon.
CALLER = "caller"
_HIDDEN = frozenset({"lease_generation", "idempotency_key", "after", "process", CALLER})


def one_page(rows: list[T], limit: int, cursor: Callable[[T], int]) -> tuple[list[T], int | None]:
    """The first ``limit`` rows, and the cursor of the page after them; None when there is none.

    One row more than ``limit`` must have been read: only that tells a full last page from one that others follow.
    """
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], cursor(rows[limit - 1])


def repository(row: Repository) -> m.RepositoryReply:
    """A repository."""
    return m.RepositoryReply(
        id=row.id,
        name=row.name,
        remote_url=row.remote_url,
        default_branch=row.default_branch,
        description=row.description,
        settings=row.settings,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def session(row: Session) -> m.SessionReply:
    """A session."""
    return m.SessionReply(
        id=row.id,
        session_id=row.id,
        repository_id=row.repository_id,
        worktree_id=row.worktree_id,
        status=row.status.value,
        commit_sha=row.commit_sha,
        patch_hash=row.patch_hash,
        requested_by=row.requested_by,
        expires_at=row.expires_at,
        metadata=_metadata(row),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _metadata(row: Session) -> dict[str, Any]:
    """What the caller wrote, and facts about the session under names that the caller did not use."""
    plan = row.plan
    facts = {
        "workspace": plan.directory,
        "scratch": plan.scratch or None,
        "branch_tree": None if plan.branch_tree is None else asdict(plan.branch_tree),
        "environment": None if plan.environment is None else asdict(plan.environment),
        "forked_from": plan.forked_from,
        "cleanup": None if row.cleanup is None else asdict(row.cleanup),
    }
    return {**{name: value for name, value in facts.items() if value is not None}, **row.metadata}


def command(row: Command) -> m.CommandReply:
    """A command."""
    return m.CommandReply(
        id=row.id,
        session_id=row.session_id,
        sequence=row.sequence,
        command=list(row.argv),
        cwd=row.cwd,
        status=row.status.value,
        exit_code=row.exit_code,
        exit_reason=row.exit_reason.value if row.exit_reason is not None else None,
        exit=row.exit.to_json() if row.exit is not None else None,
        cancel_requested=row.cancel_requested,
        log_bytes=log_bytes(row),
        created_at=row.created_at,
        updated_at=row.updated_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def log_bytes(row: Command) -> int:
    """The size of a command's log now."""
    return 0 if row.log_path is None else _size(row.log_path) or 0


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return None


def artifact(row: Artifact) -> m.ArtifactReply:
    """An artifact."""
    return m.ArtifactReply(
        id=row.id,
        session_id=row.session_id,
        command_id=row.command_id,
        kind=row.kind.value,
        name=row.name,
        size=_size(row.path) if row.size is None else row.size,  # a log may grow after its row was made
        sha256=row.sha256,
        content_type=row.content_type,
        created_at=row.created_at,
    )


def event(row: Event) -> m.EventReply:
    """An event."""
    return m.EventReply(
        seq=row.seq,
        kind=row.kind,
        session_id=row.session_id,
        command_id=row.command_id,
        subject=row.subject,
        data=row.data,
        created_at=row.created_at,
    )


def token(row: Token, secret: str | None = None) -> m.TokenReply:
    """A token."""
    return m.TokenReply(
        id=row.id,
        name=row.name,
        scopes=list(row.scopes),
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        quotas=row.quotas,
        created_at=row.created_at,
        token=secret,
    )


def lease(row: Worktree) -> m.LeaseReply:
    """A workspace."""
    return m.LeaseReply(
        id=row.id,
        repository_id=row.repository_id,
        path=row.path,
        status=row.status.value,
        commit_sha=row.commit_sha,
        owner=row.owner,
        expires_at=row.lease_expires_at,
    )
