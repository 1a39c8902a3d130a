"""Where a task runs and what it claims, by its mode; checked before it is queued."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from debug_server.errors import InvalidInputError
from debug_server.messages.tasks import ExecutionMode, RunnerSubmit, RunnerWorkspace
from debug_server.model import Claim, SessionPlan
from debug_server.service.branch_trees import BranchTreeVerbs, ClaimedBranchWorktree

_FIELDS = {
    "repository": "workspace.project_root",
    "path": "workspace.worktree_path",
    "branch": "workspace.git_branch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """The plan and the claims of a task's session."""

    plan: SessionPlan
    claims: tuple[Claim, ...] = ()


def check_mode(submit: RunnerSubmit) -> None:
    """InvalidInputError naming the missing field that the task's mode needs."""
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


async def find_place(submit: RunnerSubmit, branch_trees: BranchTreeVerbs, *, cleanup: bool) -> TaskPlace:
    """Where the task runs; ConflictError while its branch or its worktree path is in use."""
    check_mode(submit)
    workspace = submit.workspace
    if workspace is None:
        return TaskPlace(plan=SessionPlan(scratch=True))
    locks = await asyncio.to_thread(_locks, workspace)
    match submit.execution_mode:
        case ExecutionMode.SHARED_WORKSPACE:
            root = await asyncio.to_thread(_project_root, workspace)
            return TaskPlace(plan=SessionPlan(directory=str(root)), claims=locks)
        case ExecutionMode.ISOLATED_WORKTREE:
            tree = await _branch_tree(workspace, branch_trees, cleanup=cleanup)
            return TaskPlace(plan=SessionPlan(branch_tree=tree.plan), claims=(*tree.claims, *locks))
    return TaskPlace(plan=SessionPlan(scratch=True), claims=locks)


async def _branch_tree(
    workspace: RunnerWorkspace, branch_trees: BranchTreeVerbs, *, cleanup: bool
) -> ClaimedBranchWorktree:
    root = await asyncio.to_thread(_project_root, workspace)
    path = await asyncio.to_thread(os.path.realpath, workspace.worktree_path or "")
    try:
        return await branch_trees.check(
            repository=root, path=Path(path), branch=workspace.git_branch or "", cleanup=cleanup
        )
    except InvalidInputError as error:
        if error.field not in _FIELDS:
            raise
        field = _FIELDS[error.field]
        raise InvalidInputError(f"{field}: {error}", field=field) from error


def _locks(workspace: RunnerWorkspace) -> tuple[Claim, ...]:
    # By real path: two links to one directory are one lock. A path that does not exist has a real path as well.
    paths = (os.path.realpath(path).rstrip("/") for path in workspace.lock_paths)
    return tuple(Claim(resource=f"path:{path}", waits=True) for path in paths)


def _project_root(workspace: RunnerWorkspace) -> Path:
    root = Path(os.path.realpath(workspace.project_root))
    if not root.is_dir():
        raise InvalidInputError(
            f"workspace.project_root: {workspace.project_root!r} is not a directory on this machine",
            field="workspace.project_root",
        )
    return root


def _missing(field: str, mode: ExecutionMode, what: str = "it") -> InvalidInputError:
    return InvalidInputError(f"{field}: is missing, and {mode.value} needs {what}", field=field)
