"""The interface of a workspace backend, and the choice between the two implementations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from debug_server.disk import make_private
from debug_server.errors import UnmetRequirementError
from debug_server.worktrees.checkouts import CheckoutBackend
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.overlay import OverlayBackend, why_overlay_fails
from debug_server.worktrees.settings import WorktreePoolSettings
from debug_server.worktrees.submodules import Submodules

_log = logging.getLogger(__name__)


class WorkspaceBackend(Protocol):
    """Makes a directory hold exactly the files of a commit. Each path may have one caller at a time."""

    name: str

    def has(self, commit: str) -> bool:
        """Whether files of this commit are checked out here already, so that the mirror need not be searched for it."""

    def build_ahead(self, commit: str) -> None:
        """Do the slow part that needs no workspace yet."""

    def prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        """Make ``path`` a clean workspace of ``commit``.

        With ``keep``, a workspace that is already at this commit keeps the files of its last holder.
        """

    def clean(self, path: Path) -> None:
        """Remove the changes of the last holder."""

    def discard(self, path: Path) -> None:
        """Remove the workspace from the disk."""

    def replace(self, path: Path, commit: str, complete: Callable[[Path], None]) -> None:
        """Replace the workspace by a clean one after ``complete`` has changed it; if that fails, the old one stays."""

    def disk_bytes(self, path: Path) -> int:
        """The bytes on disk that belong to this workspace alone."""

    def fork(self, source: Path, target: Path, commit: str) -> None:
        """Copy the files that ``source`` has now to ``target``, a new workspace of ``commit``."""

    def index_path(self, path: Path, commit: str) -> Path:
        """git's index of the commit's files at ``path``; the holder cannot write to it."""

    def recover(self) -> None:
        """After a crash: remove what killed processes left and no lease holds."""

    def wait_for_removals(self, timeout: float) -> bool:
        """Wait until what was discarded is deleted; False after ``timeout`` seconds."""

    def collect(self, *, unused_since: float) -> None:
        """Remove trees or checkouts that nobody used since ``unused_since``, and those beyond the budget."""


def choose_backend(
    settings: WorktreePoolSettings, mirror: Mirror, submodules: Submodules | None = None
) -> WorkspaceBackend:
    """The backend that ``settings`` names; ``auto`` mounts once to find out."""
    make_private(settings.state_dir)
    reason = None if settings.backend == "pool" else why_overlay_fails(settings.state_dir)
    if settings.backend == "overlay" and reason:
        raise UnmetRequirementError(f"backend overlay cannot be used at {settings.worktree_root}: {reason}")
    if settings.backend == "pool" or reason:
        _log.info("workspace_backend_chosen", extra={"backend": "pool", "reason": reason or "settings"})
        return CheckoutBackend(
            settings.state_dir,
            mirror,
            submodules,
            **({} if settings.max_worktrees is None else {"max_checkouts": settings.max_worktrees}),
            budget=settings.tree_budget_bytes,
        )
    return OverlayBackend(settings.state_dir, mirror, submodules, tree_budget=settings.tree_budget_bytes)
