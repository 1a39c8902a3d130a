"""Mirror, trees, workspaces, leases and patches: from a commit to a ready workspace; the only place that runs git.

May import ``model``, ``ports``, ``errors``, ``config``; is imported by ``runner`` (patches and dependency state
only), ``engine``, ``service`` and ``app``.
"""

from debug_server.errors import WorktreePoolError
from debug_server.worktrees.dependency_state import DependencyState, DependencyStateStore, compute_dependency_hash
from debug_server.worktrees.leases import WorktreeLease, WorktreeStore
from debug_server.worktrees.patches import SessionPatch, apply_patch
from debug_server.worktrees.pool import WorktreePool
from debug_server.worktrees.repository_pool import build_pool_from_repository
from debug_server.worktrees.settings import WorktreePoolSettings
from debug_server.worktrees.workspace_diff import diff_workspace

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
    "build_pool_from_repository",
    "compute_dependency_hash",
    "diff_workspace",
]
