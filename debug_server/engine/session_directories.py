"""Directories of sessions without a leased workspace: scratch folders, and worktrees on branches of users.

prepare (before its command) -> path -> remove (when the session closes; the user's files are kept)
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from debug_server import worktrees  # its exports are loaded on first use
from debug_server.disk import make_private, remove_tree
from debug_server.errors import DebugServerError, NotFoundError, WorktreePoolError
from debug_server.model import UNCOMMITTED_PATCH, ArtifactKind, BranchWorktreePlan, Cleanup, Session
from debug_server.runner.cleanup_program import run_cleanup_program
from debug_server.runner.settings import RunnerPaths
from debug_server.store import MetadataStore
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust

if TYPE_CHECKING:
    from debug_server.worktrees.branches import BranchWorktree, Removal

_LOG = logging.getLogger(__name__)
_CLEANUP_PROGRAM_SECONDS = 30.0
_REMOVED_LATER = Cleanup(succeeded=True, message="removed by a later retry")


class SessionDirectories:
    """Creates and removes the directories of one machine's sessions."""

    def __init__(self, *, store: MetadataStore, paths: RunnerPaths, trust: Trust = OWN_USER_ONLY) -> None:
        self._trust = trust
        self._store = store
        self._root = paths.artifacts_root.absolute()
        self._private = paths.folders_dir.absolute()

    def prepare(self, session: Session) -> None:
        """Create the session's directory if it does not exist; WorktreePoolError if that fails."""
        try:
            if session.plan.scratch:
                make_private(self._scratch(session))
            if session.plan.branch_tree is not None:
                worktrees.branches.add(_tree(session.plan.branch_tree, self._trust), locks_dir=self._locks)
        except OSError as error:
            raise WorktreePoolError(
                f"the directory of the session cannot be created: {error.filename}: {error.strerror}"
            ) from error

    def path(self, session: Session) -> Path | None:
        """The directory of the session's command; None for a session of another kind."""
        if session.plan.scratch:
            return self._scratch(session)
        tree = session.plan.branch_tree
        return Path(tree.path) if tree is not None else None

    def run_cleanup_and_remove(self, session: Session) -> Cleanup | None:
        """Run the session's ``after`` program, then remove its directory; returns an outcome to report, if any."""
        if (argv := session.plan.after) and (output := run_cleanup_program(argv, seconds=_CLEANUP_PROGRAM_SECONDS)):
            _LOG.info("cleanup_program_output", extra={"session_id": session.id, "output": output})
        self._remove_private(session)
        if session.plan.scratch:
            return self._remove_scratch(session)
        tree = session.plan.branch_tree
        if tree is None or not tree.cleanup:
            return None
        done = self._remove_branch_tree(session, _tree(tree, self._trust))
        if not done.removed:
            _LOG.warning("removal_incomplete", extra={"session_id": session.id, "reason": done.message})
        return Cleanup(succeeded=done.removed, message=done.message)

    def _remove_scratch(self, session: Session) -> Cleanup | None:
        """Remove the scratch folder; if that fails, what remains is kept: no other session uses the folder."""
        folder = self._scratch(session)
        with suppress(OSError):  # most are empty, and without mounts: one call of the system instead of twenty
            folder.rmdir()
            return None
        if not (left := remove_tree(folder)):
            return None
        _LOG.warning("removal_incomplete", extra={"session_id": session.id, "left": [str(item) for item in left]})
        return Cleanup(succeeded=False, message=f"{folder} could not be removed: {'; '.join(map(str, left))}")

    def _remove_private(self, session: Session) -> None:
        """Remove the home folder and /tmp of the session's isolated commands."""
        folder = self._private / str(session.id)
        if folder.exists() and (left := remove_tree(folder)):  # retried later
            _LOG.warning("removal_incomplete", extra={"session_id": session.id, "left": [str(item) for item in left]})

    def retry_removals(self) -> None:
        """Remove leftover scratch and private folders of closed sessions, and update the sessions' rows.

        Worktrees on branches are left alone: the failure was reported to the user, who may use the path by now.
        """
        for session in self._closed_with_folder(self._private):
            self._remove_private(session)
        for session in self._closed_with_folder(self._root / "scratch"):
            if session.plan.scratch and not remove_tree(self._scratch(session)):
                _LOG.info("removal_completed", extra={"session_id": session.id})
                self._store.sessions.set_cleanup(session.id, _REMOVED_LATER)

    def _closed_with_folder(self, parent: Path) -> Iterator[Session]:
        """The closed sessions that have a folder in ``parent``; one of another store is skipped."""
        try:
            names = [path.name for path in parent.iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return
        for name in names:
            with suppress(NotFoundError):
                session = self._store.sessions.get(int(name))
                if not session.is_open:
                    yield session

    def _remove_branch_tree(self, session: Session, tree: BranchWorktree) -> Removal:
        target = self._root / "collected" / str(session.id) / UNCOMMITTED_PATCH
        try:
            (self._root / "collected").mkdir(mode=0o700, parents=True, exist_ok=True)
            done = worktrees.branches.remove(tree, locks_dir=self._locks, patch_path=target)
        except (DebugServerError, OSError) as error:
            return worktrees.branches.Removal(removed=False, message=f"could not be removed: {error}")
        known = [row.path for row in self._store.artifacts.in_session(session.id)]
        if target.exists() and str(target) not in known:
            data = target.read_bytes()
            self._store.artifacts.add(
                session_id=session.id,
                command_id=None,
                kind=ArtifactKind.CUSTOM,
                name=UNCOMMITTED_PATCH,
                path=str(target),
                size=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                content_type="text/x-patch",
            )
        return done

    def _scratch(self, session: Session) -> Path:
        return self._root / "scratch" / str(session.id)

    @property
    def _locks(self) -> Path:
        return self._root / "locks"


def _tree(plan: BranchWorktreePlan, trust: Trust) -> BranchWorktree:
    return worktrees.branches.BranchWorktree(
        repository=Path(plan.repository), path=Path(plan.path), branch=plan.branch, trust=trust
    )
