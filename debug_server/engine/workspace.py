"""Finds the directory in which a session's commands run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from debug_server.errors import InvalidInputError
from debug_server.model import Session, Worktree


class WorktreeRows(Protocol):
    """The part of the store that this module needs."""

    def get(self, worktree_id: int) -> Worktree:
        """The row, or NotFoundError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWorkspace:
    """A directory without a lease that takes the place of a lease for one command."""

    path: Path
    needs_dependency_sync: bool = False


def session_workspace(rows: WorktreeRows, session: Session) -> SessionWorkspace:
    """A session's worktree, or the directory that its plan names."""
    if session.worktree_id is not None:
        return SessionWorkspace(path=Path(rows.get(session.worktree_id).path))
    if session.plan.directory is not None:
        return SessionWorkspace(path=Path(session.plan.directory))
    raise InvalidInputError(
        f"session {session.id} has no workspace: open it with a repository and a commit, or with a directory"
    )
