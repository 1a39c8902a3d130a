"""Spare checkouts, which no workspace uses: dirty ones are cleaned in the background, clean ones are taken.

    put (renamed from the workspace) -> dirty --clean--> clean -> take (renamed to the next workspace)

A thread that works on a spare holds a lock on its folder. The lock ends with the process and with the last git that it
started, so the git of a killed cleaner never runs in a checkout that another process has taken.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from debug_server.errors import WorktreePoolError
from debug_server.worktrees.background_queue import BackgroundQueue
from debug_server.worktrees.git import GitPlace
from debug_server.worktrees.gitdir import read_head
from debug_server.worktrees.locks import folder_lock, scratch_folder
from debug_server.worktrees.trash import Trash, disk_bytes

_LOG = logging.getLogger(__name__)
CLEAN = "clean"  # marker file in a gitdir: the tree equals the commit in HEAD
_CLEAN_SECONDS = 60.0


class CheckoutMaker(Protocol):
    """Creates checkouts and cleans them."""

    def clean_checkout(self, place: GitPlace, lock: int) -> bool:
        """Make the tree equal its HEAD and mark it clean; False if that is not possible. git inherits ``lock``."""

    def request_spare(self, commit: str) -> None:
        """A caller waits for a spare of ``commit``: make another one if the limit allows it."""


class SpareCheckouts:
    """One folder per spare, with ``tree`` and ``git``; threads and processes may share them."""

    def __init__(self, folder: Path, drafts: Path, trash: Trash, checkouts: CheckoutMaker) -> None:
        self._folder = folder
        self._drafts = drafts  # where incomplete ones are
        self._trash = trash
        self._checkouts = checkouts
        # Not a daemon thread: a program that ends right after a release still cleans the checkout.
        self._background = BackgroundQueue("worktree-clean", daemon=False)
        self._released: set[Path] = set()

    def put(self, tree: Path, git_dir: Path, *, released: bool) -> None:
        """Take over the checkout of a workspace and clean it in the background; ``released``: the lease is over."""
        with scratch_folder(self._drafts) as draft:
            # Killed in between, a tree without gitdir is left: prepare() removes it.
            git_dir.rename(draft / "git")
            tree.rename(draft / "tree")
            spare = self._publish(draft)
        if released:
            self._released.add(spare)
        self.later(partial(self._clean_if_free, spare))

    def add(self, make: Callable[[GitPlace], None]) -> None:
        """Add a clean checkout that ``make`` creates."""
        with scratch_folder(self._drafts) as draft:
            make(_place(draft))
            (draft / "git" / CLEAN).touch()
            self._publish(draft)

    def _publish(self, draft: Path) -> Path:
        return draft.rename(self._folder / secrets.token_hex(8))

    def take(self, commit: str, tree: Path, git_dir: Path) -> bool:
        """Move the best spare to a workspace: clean, and at ``commit`` if possible; False when there is none."""
        for spare in self._best_first(commit):
            if self._take(spare, tree, git_dir, timeout=0.0):
                return True
            if spare.exists():  # it is being cleaned, or was just now
                if spare in self._released and not _is_clean(spare):
                    self._checkouts.request_spare(commit)
                if self._take(spare, tree, git_dir, timeout=_CLEAN_SECONDS):
                    return True
        return False

    def _take(self, spare: Path, tree: Path, git_dir: Path, *, timeout: float) -> bool:
        with folder_lock(spare, timeout=timeout) as lock:
            if lock is None or not self._clean(spare, lock):
                return False
            (spare / "git" / CLEAN).unlink()  # from here on its holder may change it
            # Killed in between: as in put().
            (spare / "tree").rename(tree)
            (spare / "git").rename(git_dir)
            spare.rmdir()
            self._released.discard(spare)
            return True

    def count(self) -> int:
        """The number of spares."""
        return len(self._all())

    def heads(self) -> list[str]:
        """The commits of all spares."""
        return [head for spare in self._all() if (head := read_head(spare / "git")) is not None]

    def recover(self) -> None:
        """After a crash: clean the spares that a killed process left dirty."""
        for spare in self._all():
            if not _is_clean(spare):
                self.later(partial(self._clean_if_free, spare))

    def collect(self, *, unused_since: float, budget: int | None) -> None:
        """Remove spares that are older than ``unused_since``, and the oldest ones beyond the budget."""
        spares = sorted(self._all(), key=_added_at)
        sizes = {spare: disk_bytes(spare) for spare in spares} if budget is not None else {}
        for spare in spares:
            over = budget is not None and sum(sizes.values()) > budget
            if over or _added_at(spare) < unused_since:
                with folder_lock(spare, timeout=_CLEAN_SECONDS) as lock:  # it may be being cleaned
                    if lock is not None:
                        self._trash.discard(spare)
                        sizes.pop(spare, None)

    def _all(self) -> list[Path]:
        return list(self._folder.iterdir())

    def _best_first(self, commit: str) -> list[Path]:
        return sorted(
            self._all(), key=lambda spare: (read_head(spare / "git") != commit, not _is_clean(spare), _added_at(spare))
        )

    def _clean(self, spare: Path, lock: int) -> bool:
        """Whether it is clean now; one that cannot be cleaned is removed."""
        try:
            if _is_clean(spare) or self._checkouts.clean_checkout(_place(spare), lock):
                return True
        except WorktreePoolError as error:
            _LOG.warning("checkout_not_cleaned", extra={"error": str(error)})
        self._trash.discard(spare)
        return False

    def _clean_if_free(self, spare: Path) -> None:
        with folder_lock(spare, timeout=0.0) as lock:
            if lock is not None:
                self._clean(spare, lock)

    def later(self, job: Callable[[], object]) -> None:
        """Run a job in the background, one after the other."""
        self._background.add(job)


def _place(spare: Path) -> GitPlace:
    return GitPlace(git_dir=spare / "git", work_tree=spare / "tree")


def _is_clean(spare: Path) -> bool:
    return (spare / "git" / CLEAN).exists()


def _added_at(spare: Path) -> float:
    try:
        return spare.stat().st_mtime
    except FileNotFoundError:  # it has just been taken
        return 0.0
