"""Converts rows to replies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from debug_server import messages as m
from debug_server.model import (
    Artifact,
    Command,
    EnvironmentPlan,
    Event,
    FoundCommand,
    Repository,
    Session,
    Token,
    Worktree,
)

T = TypeVar("T")
R = TypeVar("R", bound=m.Reply)


def one_page(rows: list[T], limit: int, cursor: Callable[[T], int]) -> tuple[list[T], int | None]:
    """The first ``limit`` rows, and the cursor of the next page; None on the last page.

    ``rows`` must have been read with ``limit + 1``: the extra row shows that there is another page.
    """
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], cursor(rows[limit - 1])


def _reply(kind: type[R], row: object, /, **others: Any) -> R:
    """A reply with the row's fields of the same names, and ``others``."""
    same = {name: getattr(row, name) for name in kind.model_fields if name not in others}
    return kind(**same, **others)


def repository(row: Repository) -> m.RepositoryReply:
    """A repository."""
    return _reply(m.RepositoryReply, row)


def session(row: Session) -> m.SessionReply:
    """A session."""
    return _reply(m.SessionReply, row, session_id=row.id, status=row.status.value, metadata=_metadata(row))


def _metadata(row: Session) -> dict[str, Any]:
    """The caller's metadata, and facts about the session under names that the caller does not use."""
    plan, wanted = row.plan, row.plan.environment
    facts = {
        "workspace": plan.directory,
        "scratch": plan.scratch or None,
        "branch_tree": None if plan.branch_tree is None else asdict(plan.branch_tree),
        "environment": None if wanted is None or wanted == EnvironmentPlan() else asdict(wanted),
        "forked_from": plan.forked_from,
        "cleanup": None if row.cleanup is None else asdict(row.cleanup),
    }
    return {**{name: value for name, value in facts.items() if value is not None}, **row.metadata}


def command(row: Command, waits_for: Sequence[int] = ()) -> m.CommandReply:
    """A command."""
    return _reply(m.CommandReply, row, **_of_command(row, waits_for))


def found_command(found: FoundCommand, waits_for: Sequence[int] = ()) -> m.FoundCommand:
    """A command, and where it runs."""
    return _reply(
        m.FoundCommand,
        found.command,
        **_of_command(found.command, waits_for),
        repository=found.repository,
        directory=found.directory,
        requested_by=found.requested_by,
    )


def _of_command(row: Command, waits_for: Sequence[int]) -> dict[str, Any]:
    """The fields of a reply that are not the row's."""
    return {
        "command": list(row.argv),
        "status": row.status.value,
        "exit_reason": row.exit_reason.value if row.exit_reason is not None else None,
        "exit": row.exit.to_json() if row.exit is not None else None,
        "log_bytes": log_bytes(row),
        "waits_for": list(waits_for),
    }


def log_bytes(row: Command) -> int:
    """The size of a command's log now."""
    return 0 if row.log_path is None else _size(row.log_path) or 0


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - faster than Path.stat, and read for every command
    except FileNotFoundError:
        return None


def artifact(row: Artifact) -> m.ArtifactReply:
    """An artifact."""
    size = _size(row.path) if row.size is None else row.size  # a log may grow after its row was made
    return _reply(m.ArtifactReply, row, kind=row.kind.value, size=size)


def event(row: Event) -> m.EventReply:
    """An event."""
    return _reply(m.EventReply, row)


def token(row: Token, secret: str | None = None) -> m.TokenReply:
    """A token."""
    return _reply(m.TokenReply, row, scopes=list(row.scopes), token=secret)


def lease(row: Worktree) -> m.LeaseReply:
    """A workspace."""
    return _reply(m.LeaseReply, row, status=row.status.value, expires_at=row.lease_expires_at)
