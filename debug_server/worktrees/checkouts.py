"""Workspaces as plain directories that git switches from commit to commit: for machines that cannot mount."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from debug_server.disk import detach_below, release_entry
from debug_server.errors import WorktreePoolError
from debug_server.worktrees import checkout_tree
from debug_server.worktrees.git import GitPlace, GitResult, error_for, require, run_git
from debug_server.worktrees.gitdir import read_head, write_gitdir, write_head
from debug_server.worktrees.index_dates import date_back, forget_touched
from debug_server.worktrees.locks import private_folder, sweep_private
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.spares import CLEAN, SpareCheckouts
from debug_server.worktrees.submodules import Submodules, gitlinks_of
from debug_server.worktrees.trash import Trash, disk_bytes
from debug_server.worktrees.usage import processes_under

_TIMEOUT = 900.0


class CheckoutBackend:
    """Each workspace has a gitdir of ours in ``gitdirs/<name>``; the ``.git`` inside is the holder's and never trusted.

    A checkout is in its workspace's place while somebody holds it. Given back it becomes a spare, which is cleaned in
    the background and serves the next holder of whatever workspace.
    """

    name = "pool"

    def __init__(
        self,
        state_dir: Path,
        mirror: Mirror,
        submodules: Submodules | None = None,
        *,
        max_checkouts: int = 16,
        budget: int | None = None,
    ) -> None:
        self._gitdirs = state_dir / "gitdirs"
        self._aside = state_dir / "aside"
        trash, spares = state_dir / "trash", state_dir / "spares"
        for path in (self._gitdirs, self._aside, trash, spares):
            path.mkdir(parents=True, exist_ok=True)
        self._trash = Trash(trash)
        self._spares = SpareCheckouts(spares, self._aside, self._trash, self)
        self._coming: set[str] = set()  # commits of which one more spare is being made
        self._max_checkouts = max_checkouts
        self._budget = budget
        self._mirror = mirror
        self._submodules = submodules

    def knows(self, commit: str) -> bool:
        """Whether some workspace was at this commit: then the mirror has it."""
        return commit in self._spares.heads() or any(read_head(path) == commit for path in self._gitdirs.iterdir())

    def warm(self, commit: str) -> None:
        """Nothing can be done without a workspace."""

    def prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        """Switch the directory to ``commit``, whatever state it was left in."""
        try:
            self._prepare(path, commit, keep=keep)
        except OSError as error:
            raise WorktreePoolError(f"the workspace {path} cannot be prepared: {error.strerror}") from error

    def clean(self, path: Path) -> None:
        """Leave an empty directory; what was in it is cleaned in the background. A damaged checkout is thrown away."""
        self._vacate(path, released=True)
        path.mkdir(exist_ok=True)

    def _vacate(self, path: Path, *, released: bool) -> None:
        release_entry(path)  # whatever its holder mounted there, and attributes that forbid the renaming
        git_dir = self._place(path).git_dir
        present = path.is_dir() and not path.is_symlink()
        if present and read_head(git_dir) and (git_dir / "index").is_file():  # else git was killed in it
            self._spares.put(path, git_dir, released=released)
        else:
            self.discard(path)

    def discard(self, path: Path) -> None:
        """Remove the directory and our gitdir of it."""
        self._throw(self._place(path))

    def renew(self, path: Path, commit: str, finish: Callable[[Path], None]) -> None:
        """Put the old directory aside until the new one is complete."""
        release_entry(path)
        git_dir = self._place(path).git_dir
        with private_folder(self._aside) as aside:
            path.rename(aside / "tree")
            git_dir.rename(aside / "git")
            try:
                self.prepare(path, commit, keep=False)
                finish(path)
            except BaseException:
                self.discard(path)
                (aside / "tree").rename(path)
                (aside / "git").rename(git_dir)
                raise
            self._spares.put(aside / "tree", aside / "git", released=False)

    def disk_bytes(self, path: Path) -> int:
        """The whole directory."""
        return disk_bytes(path)

    def fork(self, source: Path, target: Path, commit: str) -> None:
        """Copy what the holder touched, ignored and special files too, and the holder's ``.git``."""
        checkout_tree.copy_changes(source, self.index(source, commit), target, self._trash.throw)

    def index(self, path: Path, commit: str) -> Path:
        """The index of our gitdir."""
        del commit
        return self._place(path).git_dir / "index"

    def recover(self) -> None:
        """Delete what was being deleted, or was put aside, when a process died; clean what it left soiled."""
        self._trash.empty()
        sweep_private(self._aside)
        self._spares.recover()

    def collect(self, *, unused_since: float) -> None:
        """Drop spares that nobody used since, and those beyond the budget."""
        self._spares.collect(unused_since=unused_since, budget=self._budget)

    def _prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        place = self._place(path)
        if keep and read_head(place.git_dir) == commit and (path / ".git").is_dir():
            return
        if place.git_dir.exists() or not _remove_empty(path):  # as its last holder wished, or left in a crash
            self._vacate(path, released=False)
        if not self._spares.take(commit, path, place.git_dir):
            self._create(place, commit)
        elif read_head(place.git_dir) != commit:
            self._switch(place, commit)
        self._give_gitdir(path, place, commit)
        if self._submodules is not None:
            self._submodules.fill(path, commit)

    def _create(self, place: GitPlace, commit: str) -> None:
        tree = _tree(place)
        tree.mkdir()
        write_gitdir(place.git_dir, objects=[self._mirror.objects], head=commit)
        settings = place.git_dir / "config"
        # Unlike an overlay this directory keeps its inodes: the full comparison also sees a file with a forged date.
        settings.write_text(settings.read_text().replace("checkStat = minimal", "checkStat = default"))
        settings.write_text(settings.read_text().replace("trustctime = false", "trustctime = true"))
        result = self._read_tree(place, commit)
        if result.corrupt:
            self._mirror.rebuild()
            result = self._read_tree(place, commit)
        if not result.ok:
            self._throw(place)
            raise error_for(result, f"checking out {commit}")
        listed = require(run_git("ls-files", "-z", place=place), f"listing {tree}")
        date_back(tree, place.git_dir / "index", listed.split(b"\0"))

    def _read_tree(self, place: GitPlace, commit: str) -> GitResult:
        arguments = ("-c", "checkout.workers=0", "read-tree", "--reset", "-u", commit)
        return run_git(*arguments, place=place, timeout=_TIMEOUT)

    def _switch(self, place: GitPlace, commit: str) -> None:
        before = read_head(place.git_dir) or ""
        # Unchanged files are not written again, so new attributes would not reach them.
        compared = run_git("diff-tree", "-r", "-z", "--name-only", before, commit, place=place)
        if compared.ok and b".gitattributes" not in compared.stdout:
            switched = run_git("read-tree", "-m", "-u", before, commit, place=place, timeout=_TIMEOUT)
            if switched.ok:
                date_back(_tree(place), place.git_dir / "index", compared.stdout.split(b"\0"))
                write_head(place.git_dir, commit)
                return
        self._throw(place)
        self._create(place, commit)

    def more(self, commit: str) -> None:
        """Make one more checkout of ``commit`` in the background, if there may be one more and none is coming."""
        there = self._spares.count() + len(list(self._gitdirs.iterdir())) + len(self._coming)
        if there < self._max_checkouts and commit not in self._coming:
            self._coming.add(commit)
            self._spares.later(partial(self._make_spare, commit))

    def _make_spare(self, commit: str) -> None:
        try:
            self._spares.add(partial(self._create, commit=commit))
        finally:
            self._coming.discard(commit)

    def wash(self, place: GitPlace, lock: int) -> bool:
        """Bring every file back and remove every other one; False when the directory resists."""
        head, tree = read_head(place.git_dir), _tree(place)
        # A process that stayed behind would write into the next holder's files: it keeps the old directory.
        if head is None or not tree.is_dir() or processes_under(tree):
            return False
        if detach_below(tree):  # git would write and delete through what stays mounted
            return False
        like = place.git_dir / "like"
        like.mkdir(exist_ok=True)
        try:
            # First: a directory in the place of a tracked file must go before the file can come back.
            checkout_tree.strip(tree, place.git_dir / "index", like, self._trash.throw)
        except OSError:
            return False
        touched = forget_touched(tree, place.git_dir / "index")
        if not run_git("read-tree", "--reset", "-u", head, place=place, timeout=_TIMEOUT, lock=lock).ok:
            return False
        date_back(tree, place.git_dir / "index", touched)
        for name in gitlinks_of(place):  # git looks into none of them
            self._trash.throw(tree / name)
            (tree / name).mkdir(parents=True)
        (place.git_dir / CLEAN).touch()
        return True

    def _give_gitdir(self, path: Path, place: GitPlace, commit: str) -> None:
        inner = path / ".git"
        self._trash.throw(inner)
        write_gitdir(inner, objects=[self._mirror.objects], head=commit, remote_url=self._mirror.remote_url)
        self._mirror.write_refs(inner)
        shutil.copy2(place.git_dir / "index", inner / "index")

    def _throw(self, place: GitPlace) -> None:
        self._trash.throw(place.git_dir)
        self._trash.throw(_tree(place))

    def _place(self, path: Path) -> GitPlace:
        return GitPlace(git_dir=self._gitdirs / path.name, work_tree=path)


def _tree(place: GitPlace) -> Path:
    assert place.work_tree is not None
    return place.work_tree


def _remove_empty(path: Path) -> bool:
    """Whether there is nothing at ``path`` now."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
