"""Workspaces as plain directories that git switches from commit to commit: for machines that cannot mount."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from debug_server.disk import detach_below, release_entry
from debug_server.errors import WorktreePoolError
from debug_server.worktrees import checkout_tree
from debug_server.worktrees.git import GitPlace, require, run_git
from debug_server.worktrees.gitdir import read_head, write_gitdir, write_head
from debug_server.worktrees.index_timestamps import backdate, reset_changed
from debug_server.worktrees.locks import remove_abandoned, scratch_folder
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.processes import processes_under
from debug_server.worktrees.spare_checkouts import CLEAN, SpareCheckouts
from debug_server.worktrees.submodules import Submodules, gitlinks_of
from debug_server.worktrees.trash import Trash, disk_bytes

_TIMEOUT = 900.0


class CheckoutBackend:
    """Each workspace has a gitdir in ``gitdirs/<name>``; the ``.git`` inside belongs to the holder and is not trusted.

    While a workspace is leased, its checkout is at the path of the workspace. When it is released, the checkout becomes
    a spare, which is cleaned in the background and can serve the next holder of any workspace.
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
        self._replaced = state_dir / "aside"  # checkouts that were replaced, and spares that are not complete yet
        trash, spares = state_dir / "trash", state_dir / "spares"
        for path in (self._gitdirs, self._replaced, trash, spares):
            path.mkdir(parents=True, exist_ok=True)
        self._trash = Trash(trash)
        self._spares = SpareCheckouts(spares, self._replaced, self._trash, self)
        self._building_spares: set[str] = set()  # commits for which one more spare is being made
        self._max_checkouts = max_checkouts
        self._budget = budget
        self._mirror = mirror
        self._submodules = submodules

    def has(self, commit: str) -> bool:
        """Whether some checkout is at this commit: then the mirror has it."""
        return commit in self._spares.heads() or any(read_head(path) == commit for path in self._gitdirs.iterdir())

    def build_ahead(self, commit: str) -> None:
        """Does nothing: this backend has no work without a workspace."""

    def prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        """Switch the directory to ``commit``, whatever state it is in."""
        try:
            self._prepare(path, commit, keep=keep)
        except OSError as error:
            raise WorktreePoolError(f"the workspace {path} cannot be prepared: {error.strerror}") from error

    def clean(self, path: Path) -> None:
        """Leave an empty directory; its checkout is cleaned in the background. A damaged checkout is removed."""
        self._move_to_spares(path, released=True)
        path.mkdir(exist_ok=True)

    def _move_to_spares(self, path: Path, *, released: bool) -> None:
        release_entry(path)  # mounts of the holder, and attributes that forbid renaming
        git_dir = self._place(path).git_dir
        present = path.is_dir() and not path.is_symlink()
        if (
            present and read_head(git_dir) and (git_dir / "index").is_file()
        ):  # else git was killed while it worked in it
            self._spares.put(path, git_dir, released=released)
        else:
            self.discard(path)

    def discard(self, path: Path) -> None:
        """Remove the directory and its gitdir."""
        self._discard_checkout(self._place(path))

    def replace(self, path: Path, commit: str, complete: Callable[[Path], None]) -> None:
        """Move the old directory away until the new one is complete."""
        release_entry(path)
        git_dir = self._place(path).git_dir
        with scratch_folder(self._replaced) as old:
            path.rename(old / "tree")
            git_dir.rename(old / "git")
            try:
                self.prepare(path, commit, keep=False)
                complete(path)
            except BaseException:
                self.discard(path)
                (old / "tree").rename(path)
                (old / "git").rename(git_dir)
                raise
            self._spares.put(old / "tree", old / "git", released=False)

    def disk_bytes(self, path: Path) -> int:
        """The whole directory."""
        return disk_bytes(path)

    def wait_for_removals(self, timeout: float) -> bool:
        """Wait until the trash is empty."""
        return self._trash.wait(timeout)

    def fork(self, source: Path, target: Path, commit: str) -> None:
        """Copy what the holder changed, ignored and special files too, and the holder's ``.git``."""
        checkout_tree.copy_changes(source, self.index_path(source, commit), target, self._trash.discard)

    def index_path(self, path: Path, commit: str) -> Path:
        """The index in the gitdir of the workspace."""
        del commit
        return self._place(path).git_dir / "index"

    def recover(self) -> None:
        """After a crash: delete what was being deleted or replaced, and clean the dirty spares."""
        self._trash.empty()
        remove_abandoned(self._replaced)
        self._spares.recover()

    def collect(self, *, unused_since: float) -> None:
        """Remove spares that nobody used since ``unused_since``, and those beyond the budget."""
        self._spares.collect(unused_since=unused_since, budget=self._budget)

    def _prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        place = self._place(path)
        if keep and read_head(place.git_dir) == commit and (path / ".git").is_dir():
            return
        if place.git_dir.exists() or not _remove_empty(path):  # kept by release(clean=False), or left by a crash
            self._move_to_spares(path, released=False)
        if not self._spares.take(commit, path, place.git_dir):
            self._create(place, commit)
        elif read_head(place.git_dir) != commit:
            self._switch(place, commit)
        self._give_gitdir(path, place, commit)
        if self._submodules is not None:
            self._submodules.check_out(path, commit)

    def _create(self, place: GitPlace, commit: str) -> None:
        tree = _tree(place)
        tree.mkdir()
        write_gitdir(place.git_dir, objects=[self._mirror.objects], head=commit)
        settings = place.git_dir / "config"
        # Inodes do not change here, unlike in an overlay: a full comparison also sees a file with a forged date.
        settings.write_text(settings.read_text().replace("checkStat = minimal", "checkStat = default"))
        settings.write_text(settings.read_text().replace("trustctime = false", "trustctime = true"))
        try:
            self._mirror.check_out(commit, place)
        except WorktreePoolError:
            self._discard_checkout(place)
            raise
        listed = require(run_git("ls-files", "-z", place=place), f"listing {tree}")
        backdate(tree, place.git_dir / "index", listed.split(b"\0"))

    def _switch(self, place: GitPlace, commit: str) -> None:
        before = read_head(place.git_dir) or ""
        # read-tree does not write unchanged files again, so changed attributes would not apply to them.
        compared = run_git("diff-tree", "-r", "-z", "--name-only", before, commit, place=place)
        if compared.ok and b".gitattributes" not in compared.stdout:
            switched = run_git("read-tree", "-m", "-u", before, commit, place=place, timeout=_TIMEOUT)
            if switched.ok:
                backdate(_tree(place), place.git_dir / "index", compared.stdout.split(b"\0"))
                write_head(place.git_dir, commit)
                return
        self._discard_checkout(place)
        self._create(place, commit)

    def request_spare(self, commit: str) -> None:
        """Make one more checkout of ``commit`` in the background, unless there are enough or one is being made."""
        existing = self._spares.count() + len(list(self._gitdirs.iterdir())) + len(self._building_spares)
        if existing < self._max_checkouts and commit not in self._building_spares:
            self._building_spares.add(commit)
            self._spares.later(partial(self._make_spare, commit))

    def _make_spare(self, commit: str) -> None:
        try:
            self._spares.add(partial(self._create, commit=commit))
        finally:
            self._building_spares.discard(commit)

    def clean_checkout(self, place: GitPlace, lock: int) -> bool:
        """Restore every tracked file and remove every other one; False when that is not possible."""
        head, tree = read_head(place.git_dir), _tree(place)
        # A process that still runs here would write into the next holder's files.
        if head is None or not tree.is_dir() or processes_under(tree):
            return False
        if detach_below(tree):  # git would write and delete through a mount that is left
            return False
        like = place.git_dir / "like"
        like.mkdir(exist_ok=True)
        try:
            # First: a directory at the path of a tracked file must be removed before git can restore the file.
            checkout_tree.remove_untracked(tree, place.git_dir / "index", like, self._trash.discard)
        except OSError:
            return False
        touched = reset_changed(tree, place.git_dir / "index")
        if not run_git("read-tree", "--reset", "-u", head, place=place, timeout=_TIMEOUT, lock=lock).ok:
            return False
        backdate(tree, place.git_dir / "index", touched)
        for name in gitlinks_of(place):  # git does not look into submodules
            self._trash.discard(tree / name)
            (tree / name).mkdir(parents=True)
        (place.git_dir / CLEAN).touch()
        return True

    def _give_gitdir(self, path: Path, place: GitPlace, commit: str) -> None:
        inner = path / ".git"
        self._trash.discard(inner)
        write_gitdir(inner, objects=[self._mirror.objects], head=commit, remote_url=self._mirror.remote_url)
        self._mirror.write_refs(inner)
        shutil.copy2(place.git_dir / "index", inner / "index")

    def _discard_checkout(self, place: GitPlace) -> None:
        self._trash.discard(place.git_dir)
        self._trash.discard(_tree(place))

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
