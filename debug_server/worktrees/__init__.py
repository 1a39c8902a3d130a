"""Mirror, trees, workspaces, leases and patches: from a commit to a ready workspace; the only place that runs git.

May import ``model``, ``ports``, ``errors``, ``config``; is imported by ``runner`` (patches and dependency state
only), ``engine``, ``service`` and ``app``. Exports are loaded on first use because a command in a plain folder needs
none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.errors import WorktreePoolError
    from debug_server.worktrees import branches
    from debug_server.worktrees.dependency_state import DependencyState, DependencyStateStore, compute_dependency_hash
    from debug_server.worktrees.leases import WorktreeLease, WorktreeStore
    from debug_server.worktrees.mirror import check_remote_url
    from debug_server.worktrees.patches import SessionPatch, apply_patch, load_patch
    from debug_server.worktrees.pool import WorktreePool
    from debug_server.worktrees.repository_pool import build_pool_from_repository
    from debug_server.worktrees.repository_view import is_repository
    from debug_server.worktrees.settings import WorktreePoolSettings
    from debug_server.worktrees.workspace_diff import diff_workspace

_HOMES = {
    "DependencyState": "worktrees.dependency_state",
    "DependencyStateStore": "worktrees.dependency_state",
    "SessionPatch": "worktrees.patches",
    "WorktreeLease": "worktrees.leases",
    "WorktreePool": "worktrees.pool",
    "WorktreePoolError": "errors",
    "WorktreePoolSettings": "worktrees.settings",
    "WorktreeStore": "worktrees.leases",
    "apply_patch": "worktrees.patches",
    "build_pool_from_repository": "worktrees.repository_pool",
    "check_remote_url": "worktrees.mirror",
    "compute_dependency_hash": "worktrees.dependency_state",
    "diff_workspace": "worktrees.workspace_diff",
    "is_repository": "worktrees.repository_view",
    "load_patch": "worktrees.patches",
}

__all__ = [
    "DependencyState",
    "DependencyStateStore",
    "SessionPatch",
    "WorktreeLease",
    "WorktreePool",
    "WorktreePoolError",
    "WorktreePoolSettings",
    "WorktreeStore",
    "apply_patch",
    "branches",
    "build_pool_from_repository",
    "check_remote_url",
    "compute_dependency_hash",
    "diff_workspace",
    "is_repository",
    "load_patch",
]


def __getattr__(name: str) -> Any:
    if name == "branches":
        return import_module(f"{__name__}.branches")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"debug_server.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
