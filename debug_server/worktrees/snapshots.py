"""What a workspace's holder changed, as a patch; the workspace's own gitdir is read for objects only."""

from __future__ import annotations

import shutil
from pathlib import Path

from debug_server.errors import WorktreePoolError
from debug_server.worktrees.git import GitPlace, require, run_git
from debug_server.worktrees.gitdir import scratch_gitdir
from debug_server.worktrees.patches import SessionPatch, apply_patch

_TIMEOUT = 600.0
_DIFF = (
    *("diff", "--cached", "--binary", "--full-index", "--find-renames", "--no-color", "--no-ext-diff"),
    *("--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
)


def diff_workspace(path: Path, base_commit: str, *, objects: Path | None = None, index: Path | None = None) -> bytes:
    """The patch that turns ``base_commit`` into the files at ``path``: new files too, ignored ones not.

    ``index`` may be git's index of the unchanged files; without it every file is read.
    """
    with scratch_gitdir([objects or _objects_of(path)]) as git_dir:
        place = GitPlace(git_dir=git_dir, work_tree=path)
        if index is not None:
            shutil.copy2(index, git_dir / "index")
        else:
            require(run_git("read-tree", base_commit, place=place), f"reading {base_commit}")
        added = run_git("-c", "advice.addEmbeddedRepo=false", "add", "--all", place=place, timeout=_TIMEOUT)
        require(added, f"reading the changes of {path}")
        return require(run_git(*_DIFF, base_commit, place=place, timeout=_TIMEOUT), f"comparing {path}")


def reset_workspace(
    path: Path, base_commit: str, patch: SessionPatch | None = None, *, patches_dir: Path | None = None
) -> None:
    """Make the files at ``path`` those of the commit plus the patch; ignored and unknown files go."""
    with scratch_gitdir([_objects_of(path)]) as git_dir:
        place = GitPlace(git_dir=git_dir, work_tree=path)
        require(run_git("read-tree", base_commit, place=place), f"reading {base_commit}")
        require(run_git("clean", "-ffdxq", place=place, timeout=_TIMEOUT), f"cleaning {path}")
        require(run_git("read-tree", "--reset", "-u", base_commit, place=place, timeout=_TIMEOUT), f"resetting {path}")
        if patch is not None:
            apply_patch(path, patch, patches_dir=patches_dir or git_dir)


def _objects_of(path: Path) -> Path:
    git_dir = path / ".git"
    if git_dir.is_file():
        git_dir = (path / git_dir.read_text().removeprefix("gitdir:").strip()).resolve()
    common = git_dir / "commondir"
    if common.is_file():
        git_dir = (git_dir / common.read_text().strip()).resolve()
    objects = git_dir / "objects"
    if not objects.is_dir():
        raise WorktreePoolError(f"{path} is not a workspace: it has no git objects")
    return objects
