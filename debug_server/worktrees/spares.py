"""Checkouts that nobody holds: a soiled one is cleaned in the background, a clean one waits for its next holder.

    put (renamed out of its holder's place) -> soiled --wash--> clean -> take (renamed into the next holder's place)

Whoever works on one has its folder locked. The lock falls with the process and with the last git that it started, so a
killed cleaner's git is never in a tree that somebody else has taken.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from debug_server.errors import WorktreePoolError
from debug_server.worktrees.chores import Chores
from debug_server.worktrees.git import GitPlace
from debug_server.worktrees.gitdir import read_head
from debug_server.worktrees.locks import folder_lock, private_folder
from debug_server.worktrees.trash import Trash, disk_bytes

_LOG = logging.getLogger(__name__)
CLEAN = "clean"  # in a gitdir: the tree is known to equal the commit that HEAD names
_WASH_SECONDS = 60.0


class Checkouts(Protocol):
    """Who makes the checkouts and brings them back to their commit."""

    def wash(self, place: GitPlace, lock: int) -> bool:
        """Make the tree equal its HEAD and mark it clean; False when it resists. git inherits ``lock``."""

    def more(self, commit: str) -> None:
        """Somebody has to wait for a spare of ``commit``: make another one if there may be more."""


class SpareCheckouts:
    """Folders with ``tree`` and ``git``; any number of threads and processes may share them."""

    def __init__(self, folder: Path, drafts: Path, trash: Trash, checkouts: Checkouts) -> None:
        self._folder = folder
        self._drafts = drafts  # where those that are not complete lie
        self._trash = trash
        self._checkouts = checkouts
        # Not a daemon: a program that ends right after a release leaves the next one a clean checkout.
        self._chores = Chores("worktree-wash", daemon=False)
        self._released: set[Path] = set()

    def put(self, tree: Path, git_dir: Path, *, released: bool) -> None:
        """Take a checkout out of its place, and have it cleaned; ``released``: somebody else may want one like it."""
        with private_folder(self._drafts) as draft:
            # Killed in between, a tree without its gitdir is left in its place, which is no checkout.
            git_dir.rename(draft / "git")
            tree.rename(draft / "tree")
            spare = self._show(draft)
        if released:
            self._released.add(spare)
        self.later(partial(self._wash, spare))

    def add(self, make: Callable[[GitPlace], None]) -> None:
        """One more, which ``make`` makes and leaves clean."""
        with private_folder(self._drafts) as draft:
            make(_place(draft))
            (draft / "git" / CLEAN).touch()
            self._show(draft)

    def _show(self, draft: Path) -> Path:
        return draft.rename(self._folder / secrets.token_hex(8))

    def take(self, commit: str, tree: Path, git_dir: Path) -> bool:
        """Put the best one into place: clean, at ``commit`` if there is such a one; False when there is none at all."""
        for spare in self._by_fitness(commit):
            if self._take(spare, tree, git_dir, patience=0.0):
                return True
            if spare.exists() and not _is_clean(spare):  # it is being washed
                if spare in self._released:
                    self._checkouts.more(commit)
                if self._take(spare, tree, git_dir, patience=_WASH_SECONDS):
                    return True
        return False

    def _take(self, spare: Path, tree: Path, git_dir: Path, *, patience: float) -> bool:
        with folder_lock(spare, timeout=patience) as lock:
            if lock is None or not self._clean(spare, lock):
                return False
            (spare / "git" / CLEAN).unlink()  # from here on nobody can say what is done to it
            # Killed in between: as above.
            (spare / "tree").rename(tree)
            (spare / "git").rename(git_dir)
            spare.rmdir()
            self._released.discard(spare)
            return True

    def count(self) -> int:
        """How many there are."""
        return len(self._all())

    def heads(self) -> list[str]:
        """The commits of those that are here."""
        return [head for spare in self._all() if (head := read_head(spare / "git")) is not None]

    def recover(self) -> None:
        """Have cleaned what a killed process left soiled."""
        for spare in self._all():
            if not _is_clean(spare):
                self.later(partial(self._wash, spare))

    def collect(self, *, unused_since: float, budget: int | None) -> None:
        """Remove those that were put here before ``unused_since``, and the oldest while all are over the budget."""
        spares = sorted(self._all(), key=_put_at)
        sizes = {spare: disk_bytes(spare) for spare in spares} if budget is not None else {}
        for spare in spares:
            over = budget is not None and sum(sizes.values()) > budget
            if over or _put_at(spare) < unused_since:
                with folder_lock(spare, timeout=0.0) as lock:
                    if lock is not None:
                        self._trash.throw(spare)
                        sizes.pop(spare, None)

    def _all(self) -> list[Path]:
        return list(self._folder.iterdir())

    def _by_fitness(self, commit: str) -> list[Path]:
        return sorted(
            self._all(), key=lambda spare: (read_head(spare / "git") != commit, not _is_clean(spare), _put_at(spare))
        )

    def _clean(self, spare: Path, lock: int) -> bool:
        """Whether it is clean now; one that cannot be cleaned is thrown away."""
        try:
            if _is_clean(spare) or self._checkouts.wash(_place(spare), lock):
                return True
        except WorktreePoolError as error:
            _LOG.warning("wash_failed", extra={"error": str(error)})
        self._trash.throw(spare)
        return False

    def _wash(self, spare: Path) -> None:
        with folder_lock(spare, timeout=0.0) as lock:
            if lock is not None:
                self._clean(spare, lock)

    def later(self, job: Callable[[], object]) -> None:
        """Do something with spares in the background, one after the other."""
        self._chores.add(job)


def _place(spare: Path) -> GitPlace:
    return GitPlace(git_dir=spare / "git", work_tree=spare / "tree")


def _is_clean(spare: Path) -> bool:
    return (spare / "git" / CLEAN).exists()


def _put_at(spare: Path) -> float:
    try:
        return spare.stat().st_mtime
    except FileNotFoundError:  # somebody has just taken it
        return 0.0
