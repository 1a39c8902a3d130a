"""What a pool asks of the thing that makes workspaces, and the choice between the two that do."""

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
    """Makes a directory hold exactly a commit's files, again and again. Callers fence: one caller per path."""

    name: str

    def knows(self, commit: str) -> bool:
        """Whether a workspace of this commit can be made without asking the mirror."""

    def warm(self, commit: str) -> None:
        """Do the slow part that needs no workspace."""

    def prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        """Make ``path`` a clean workspace of ``commit``; with ``keep`` leftovers of the same commit may stay."""

    def clean(self, path: Path) -> None:
        """Drop what the holder left."""

    def discard(self, path: Path) -> None:
        """Remove the workspace from the disk."""

    def renew(self, path: Path, commit: str, finish: Callable[[Path], None]) -> None:
        """Replace the workspace by a clean one that ``finish`` has completed; the old one stays if that fails."""

    def disk_bytes(self, path: Path) -> int:
        """What the workspace itself takes."""

    def fork(self, source: Path, target: Path, commit: str) -> None:
        """Give ``target``, a fresh workspace of ``commit``, the files that ``source`` has now."""

    def index(self, path: Path, commit: str) -> Path:
        """git's index of the commit's files as ``path`` shows them; only we write it."""

    def recover(self) -> None:
        """Remove what killed processes left and no lease owns."""

    def collect(self, *, unused_since: float) -> None:
        """Give disk space back."""


def choose_backend(
    settings: WorktreePoolSettings, mirror: Mirror, submodules: Submodules | None = None
) -> WorkspaceBackend:
    """The backend that ``settings`` names; ``auto`` really mounts once to find out."""
    make_private(settings.state_dir)
    reason = None if settings.backend == "pool" else why_overlay_fails(settings.state_dir)
    if settings.backend == "overlay" and reason:
        raise UnmetRequirementError(f"backend overlay cannot be used at {settings.worktree_root}: {reason}")
    if settings.backend == "pool" or reason:
        _log.info("worktrees.backend", extra={"backend": "pool", "reason": reason or "settings"})
        return CheckoutBackend(
            settings.state_dir,
            mirror,
            submodules,
            max_checkouts=settings.max_worktrees,
            budget=settings.tree_budget_bytes,
        )
    return OverlayBackend(settings.state_dir, mirror, submodules, tree_budget=settings.tree_budget_bytes)
