"""What a session without a leased workspace has for itself: a scratch folder, a branch of the caller's repository.

prepare (before its command) -> path -> leave (when the session closes: nothing of it stays, nothing of the user's goes)
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import Path

from debug_server.disk import make_private, remove_tree
from debug_server.errors import DebugServerError, NotFoundError, WorktreePoolError
from debug_server.model import UNCOMMITTED_PATCH, ArtifactKind, BranchWorktreePlan, Cleanup, Session
from debug_server.runner.cleanup_program import run_cleanup_program
from debug_server.runner.settings import RunnerPaths
from debug_server.store import MetadataStore
from debug_server.worktrees import branches
from debug_server.worktrees.branches import BranchWorktree, Removal
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust

_LOG = logging.getLogger(__name__)
_AFTER_SECONDS = 30.0
_REMOVED_LATER = Cleanup(succeeded=True, message="removed later")


class OwnPlaces:
    """The own places of one machine's sessions."""

    def __init__(self, *, store: MetadataStore, paths: RunnerPaths, trust: Trust = OWN_USER_ONLY) -> None:
        self._trust = trust
        self._store = store
        self._root = paths.artifacts_root.absolute()

    def prepare(self, session: Session) -> None:
        """Make what the session's command needs; doing it twice is harmless. WorktreePoolError where it cannot be."""
        try:
            if session.plan.scratch:
                make_private(self._scratch(session))
            if session.plan.branch_tree is not None:
                branches.add(_tree(session.plan.branch_tree, self._trust), locks_dir=self._locks)
        except OSError as error:
            raise WorktreePoolError(f"its directory cannot be made: {error.filename}: {error.strerror}") from error

    def path(self, session: Session) -> Path | None:
        """Where its command runs; None for a session of another kind."""
        if session.plan.scratch:
            return self._scratch(session)
        tree = session.plan.branch_tree
        return Path(tree.path) if tree is not None else None

    def leave(self, session: Session) -> Cleanup | None:
        """Remove what was made; returns what there is to tell of it."""
        if (argv := session.plan.after) and (said := run_cleanup_program(argv, seconds=_AFTER_SECONDS)):
            _LOG.info("after_program", extra={"session_id": session.id, "said": said})
        if session.plan.scratch:
            return self._leave_scratch(session)
        tree = session.plan.branch_tree
        if tree is None or not tree.cleanup:
            return None
        done = self._removal(session, _tree(tree, self._trust))
        if not done.removed:
            _LOG.warning("removal_incomplete", extra={"session_id": session.id, "reason": done.message})
        return Cleanup(succeeded=done.removed, message=done.message)

    def _leave_scratch(self, session: Session) -> Cleanup | None:
        """No other session ever gets the folder: what resists can stay where it is."""
        place = self._scratch(session)
        if not (left := remove_tree(place)):
            return None
        _LOG.warning("removal_incomplete", extra={"session_id": session.id, "left": [str(item) for item in left]})
        return Cleanup(succeeded=False, message=f"{place} could not be removed: {'; '.join(map(str, left))}")

    def retry(self) -> None:
        """Remove the scratch folders of closed sessions that resisted; what a session's row says follows.

        Not the trees on branches: they are in a folder of the user's, who was told, and may use the path by now.
        """
        try:
            names = [path.name for path in (self._root / "scratch").iterdir() if path.name.isdigit()]
        except FileNotFoundError:
            return
        for name in names:
            with suppress(NotFoundError):  # another store's
                session = self._store.sessions.get(int(name))
                if session.plan.scratch and not session.is_open and not remove_tree(self._scratch(session)):
                    _LOG.info("removal_completed", extra={"session_id": session.id})
                    self._store.sessions.set_cleanup(session.id, _REMOVED_LATER)

    def _removal(self, session: Session, tree: BranchWorktree) -> Removal:
        target = self._root / "collected" / str(session.id) / UNCOMMITTED_PATCH
        try:
            (self._root / "collected").mkdir(mode=0o700, parents=True, exist_ok=True)
            done = branches.remove(tree, locks_dir=self._locks, patch_path=target)
        except (DebugServerError, OSError) as error:
            return Removal(removed=False, message=f"could not be removed: {error}")
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
    return BranchWorktree(repository=Path(plan.repository), path=Path(plan.path), branch=plan.branch, trust=trust)
