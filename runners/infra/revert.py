"""Reverts one commit by a new one, or leaves the repository exactly as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runners.infra.repository_lock import LOCK_FILE, require_free
from runners.kit.event import Event
from runners.kit.git import Git
from runners.kit.refusal import Refusal
from runners.kit.tree import Tree
from runners.kit.words import single_line

COMMIT = re.compile(r"[0-9a-f]{7,64}", re.IGNORECASE)
UNFINISHED = ("MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")


def revert(event: Event, tree: Tree) -> Iterator[str]:
    """Add a commit that takes back the one that the payload names."""
    asked = str(event.details.get("commit") or event.plain.strip())
    if not COMMIT.fullmatch(asked):
        # A name such as HEAD means another commit after the revert, so the same event run twice would undo itself.
        raise Refusal(f"{single_line(asked, 60)!r} is not a commit id; name the commit by 7 or more hex digits")
    git = Git(tree.path)
    git.require()
    with tree.lock():
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
        raise Refusal(f"the repository has no commit {asked}")
    commit = answer.output.strip()
    if not git("merge-base", "--is-ancestor", commit, "HEAD").ok:
        raise Refusal(f"commit {commit[:12]} is not in the history of the current branch")
    if len(git.must("rev-list", "--parents", "-n", "1", commit).split()) > 2:
        raise Refusal(f"commit {commit[:12]} is a merge; revert the commits that it brought, or the merge by hand")
    return commit


def _reverted(git: Git, commit: str) -> bool:
    """Whether a later commit takes it back, and is not itself taken back."""
    pattern = f"--grep=^This reverts commit {commit}"
    later = git.must("rev-list", pattern, f"{commit}..HEAD").split()
    return any(not _reverted(git, item) for item in later)


def _require_clean(git: Git, tree: Tree) -> None:
    for name in UNFINISHED:
        path = git.must("rev-parse", "--git-path", name).strip()
        if (tree.path / path).exists():
            raise Refusal(f"the repository is in the middle of something ({name}); finish it first")
    changed = git.must("status", "--porcelain", "--untracked-files=no").splitlines()
    changed = [line for line in changed if line[3:] != LOCK_FILE]
    if changed:
        raise Refusal(f"{len(changed)} files have changes that are not committed, the first {changed[0][3:]!r}")


def _revert(git: Git, commit: str) -> None:
    identity = [] if git("var", "GIT_COMMITTER_IDENT").ok else ["-c", "user.name=infra runner", "-c"]
    identity += ["user.email=infra@localhost"] if identity else []
    answer = git(*identity, "revert", "--no-edit", commit)
    if answer.ok:
        return
    git("revert", "--abort")
    raise Refusal(f"commit {commit[:12]} cannot be reverted, the repository is as it was: {answer.complaint}")
