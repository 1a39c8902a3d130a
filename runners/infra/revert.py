"""Reverts one commit with a new one, or leaves the repository unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runners.infra.repository_lock import LOCK_FILE, require_free
from runners.kit.errors import JobError
from runners.kit.event import Event
from runners.kit.git import Git, open_repository
from runners.kit.text import single_line
from runners.kit.tree import Tree

COMMIT = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
UNFINISHED = ("MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


def revert(event: Event, tree: Tree) -> Iterator[str]:
    """Add a commit that reverts the one in the payload."""
    asked = str(event.details.get("commit") or event.plain.strip())
    if not COMMIT.fullmatch(asked):
        # HEAD is another commit after the revert: the same event, run twice, would revert the revert.
        raise JobError(f"{single_line(asked, 60)!r} is not a commit id: use 7 or more hex digits")
    with open_repository(tree.path) as git, tree.lock():
        if git is None:
            raise JobError(f"{tree.path} is not the top folder of a git repository")
        require_free(event, tree)
        commit = _commit(git, asked)
        if _reverted(git, commit):
            yield f"commit {commit[:12]} is already reverted"
            return
        _require_clean(git, tree)
        _revert(git, commit)
        yield f"commit {commit[:12]} reverted by {git.must('rev-parse', 'HEAD').strip()[:12]}"


def _commit(git: Git, asked: str) -> str:
    answer = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{asked}^{{commit}}")
    if not answer.ok:
        raise JobError(f"the repository has no commit {asked}")
    commit = answer.output.strip()
    if not git("merge-base", "--is-ancestor", commit, "HEAD").ok:
        raise JobError(f"commit {commit[:12]} is not in the history of the current branch")
    if len(git.must("rev-list", "--parents", "-n", "1", commit).split()) > 2:
        raise JobError(f"commit {commit[:12]} is a merge; revert its commits one by one, or the merge by hand")
    return commit


def _reverted(git: Git, commit: str) -> bool:
    """Whether a later commit reverts it and is not reverted itself."""
    pattern = f"--grep=^This reverts commit {commit}"
    later = git.must("rev-list", pattern, f"{commit}..HEAD").split()
    return any(not _reverted(git, item) for item in later)


def _require_clean(git: Git, tree: Tree) -> None:
    for name in UNFINISHED:
        path = git.must("rev-parse", "--git-path", name).strip()
        if (tree.path / path).exists():
            raise JobError(f"an operation is in progress in the repository ({name}): finish it first")
    changed = git.must("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty").splitlines()
    changed = [line for line in changed if line[3:] != LOCK_FILE]
    if changed:
        raise JobError(f"{len(changed)} files have uncommitted changes, the first is {changed[0][3:]!r}")


def _revert(git: Git, commit: str) -> None:
    identity = [] if git("var", "GIT_COMMITTER_IDENT").ok else ["-c", "user.name=infra runner", "-c"]
    identity += ["user.email=infra@localhost"] if identity else []
    answer = git(*identity, "revert", "--no-edit", commit)
    if answer.ok:
        return
    git("revert", "--abort")
    raise JobError(f"commit {commit[:12]} cannot be reverted, the repository is unchanged: {answer.error}")
