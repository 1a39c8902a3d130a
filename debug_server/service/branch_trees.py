"""The verbs of branch trees: worktrees on a branch of a user's own repository, for the life of a session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from debug_server.errors import InvalidInputError
from debug_server.model import BranchWorktreePlan, Claim
from debug_server.service.verbs import Verbs
from debug_server.worktrees import branches
from debug_server.worktrees.branches import BranchWorktree
from debug_server.worktrees.git_dirs import common_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedBranchWorktree:
    """A checked plan, and the claims on the branch and the path that its session must make."""

    plan: BranchWorktreePlan
    claims: tuple[Claim, ...]


class BranchTreeVerbs(Verbs):
    """Used by other parts of the server, not by surfaces."""

    async def check(self, *, repository: Path, path: Path, branch: str, cleanup: bool) -> ClaimedBranchWorktree:
        """The plan of a worktree of ``repository`` at ``path``; ConflictError while the branch or the path is in use.

        InvalidInputError names the wrong one of ``repository``, ``path`` and ``branch`` as its field.
        """
        return await self._call_git(self._check, repository, path, branch, cleanup)

    def _check(self, repository: Path, path: Path, branch: str, cleanup: bool) -> ClaimedBranchWorktree:
        trust = self._sessions.trust
        try:
            trust.check(repository)
            common = common_dir(repository)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), field="repository") from error
        if path == repository or repository.is_relative_to(path) or path.is_relative_to(common):
            raise InvalidInputError(f"{path} is the repository, above it, or in its git directory", field="path")
        try:
            trust.check_place(path)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), field="path") from error
        try:
            name = branches.branch_name(branch)
        except InvalidInputError as error:
            raise InvalidInputError(str(error), field="branch") from error
        tree = BranchWorktree(repository=repository, path=path, branch=name, trust=trust)
        branches.check_free(tree, locks_dir=self._shared.paths.artifacts_root.absolute() / "locks")
        return ClaimedBranchWorktree(
            plan=BranchWorktreePlan(repository=str(repository), path=str(path), branch=name, cleanup=cleanup),
            claims=(
                Claim(resource=f"branch {name} of {common}", waits=False),
                Claim(resource=f"worktree:{path}", waits=False),
            ),
        )
