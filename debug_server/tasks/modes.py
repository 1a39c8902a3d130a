"""Where a task runs and what it has for itself, by its mode; checked against the disk before it is queued."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.errors import InvalidInputError
from debug_server.model import BranchWorktreePlan, Claim, SessionPlan
from debug_server.tasks.models import ExecutionMode, RunnerSubmit, RunnerWorkspace
from debug_server.worktrees import branches
from debug_server.worktrees.branches import BranchWorktree
from debug_server.worktrees.git_dirs import common_dir
from debug_server.worktrees.repository_trust import OWN_USER_ONLY, Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a task's session says of its directory, and what it claims."""

    plan: SessionPlan
    claims: list[Claim] = field(default_factory=list)


def check_mode(submit: RunnerSubmit) -> None:
    """InvalidInputError naming the field that the task's mode needs."""
    mode, workspace = submit.execution_mode, submit.workspace
    if mode is ExecutionMode.DOCKER_SANDBOX and submit.sandbox is None:
        raise _missing("sandbox", mode)
    if mode not in (ExecutionMode.SHARED_WORKSPACE, ExecutionMode.ISOLATED_WORKTREE):
        return
    if workspace is None:
        raise _missing("workspace", mode)
    if mode is ExecutionMode.SHARED_WORKSPACE:
        if not workspace.lock_paths:
            raise _missing("workspace.lock_paths", mode, "at least one path")
        return
    for name in ("worktree_path", "git_branch"):
        if getattr(workspace, name) is None:
            raise _missing(f"workspace.{name}", mode)


def find_place(submit: RunnerSubmit, *, cleanup: bool, locks_dir: Path, trust: Trust = OWN_USER_ONLY) -> Place:
    """The task's place; ConflictError when its branch or its path is somebody else's. Looks at the disk, runs git."""
    check_mode(submit)
    workspace = submit.workspace
    locks = [] if workspace is None else [_lock(path) for path in workspace.lock_paths]
    if submit.execution_mode is ExecutionMode.SHARED_WORKSPACE and workspace is not None:
        return Place(plan=SessionPlan(directory=str(_root(workspace))), claims=locks)
    if submit.execution_mode is ExecutionMode.ISOLATED_WORKTREE and workspace is not None:
        tree = _tree(workspace, trust)
        branches.check_free(tree, locks_dir=locks_dir)
        plan = BranchWorktreePlan(
            repository=str(tree.repository), path=str(tree.path), branch=tree.branch, cleanup=cleanup
        )
        return Place(plan=SessionPlan(branch_tree=plan), claims=[*_tree_claims(tree), *locks])
    return Place(plan=SessionPlan(scratch=True), claims=locks)


def _lock(path: str) -> Claim:
    # By its real name: two links to one directory are one lock. What does not exist yet has a name as well.
    return Claim(resource=f"path:{os.path.realpath(path).rstrip('/')}", waits=True)


def _root(workspace: RunnerWorkspace) -> Path:
    root = Path(os.path.realpath(workspace.project_root))
    if not root.is_dir():
        raise InvalidInputError(
            f"workspace.project_root: {workspace.project_root!r} is not a directory on this machine",
            field="workspace.project_root",
        )
    return root


def _tree(workspace: RunnerWorkspace, trust: Trust) -> BranchWorktree:
    root = _root(workspace)
    path = Path(os.path.realpath(workspace.worktree_path or ""))
    try:
        trust.check(root)
        shared = common_dir(root)
    except InvalidInputError as error:
        raise InvalidInputError(f"workspace.project_root: {error}", field="workspace.project_root") from error
    if path == root or root.is_relative_to(path) or path.is_relative_to(shared):
        raise InvalidInputError(
            f"workspace.worktree_path: {path} is the project itself, or above it, or in its git directory",
            field="workspace.worktree_path",
        )
    try:
        branch = branches.branch_name(workspace.git_branch or "")
    except InvalidInputError as error:
        raise InvalidInputError(f"workspace.git_branch: {error}", field="workspace.git_branch") from error
    return BranchWorktree(repository=root, path=path, branch=branch, trust=trust)


def _tree_claims(tree: BranchWorktree) -> list[Claim]:
    shared = common_dir(tree.repository)
    return [
        Claim(resource=f"branch {tree.branch} of {shared}", waits=False),
        Claim(resource=f"worktree:{tree.path}", waits=False),
    ]


def _missing(field_: str, mode: ExecutionMode, what: str = "it") -> InvalidInputError:
    return InvalidInputError(f"{field_}: is missing, and {mode.value} needs {what}", field=field_)
