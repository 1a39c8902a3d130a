"""Workspaces as overlay mounts over shared trees."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from debug_server.disk import detach, is_mounted, remove_tree
from debug_server.errors import WorktreePoolError
from debug_server.worktrees.copying import copy_whole
from debug_server.worktrees.locks import file_lock
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.overlay_mount import mount_overlay
from debug_server.worktrees.submodules import Submodules
from debug_server.worktrees.trash import Trash, disk_bytes
from debug_server.worktrees.trees import Tree, TreeCache

_PROBE_TIMEOUT = 30.0


class OverlayBackend:
    """A workspace is a mount; what its holder writes goes to ``uppers/<name>`` and is removed as one directory."""

    name = "overlay"

    def __init__(
        self, state_dir: Path, mirror: Mirror, submodules: Submodules | None = None, *, tree_budget: int | None = None
    ) -> None:
        self._uppers = state_dir / "uppers"
        trash = state_dir / "trash"
        for path in (self._uppers, trash):
            path.mkdir(parents=True, exist_ok=True)
        self._trash = Trash(trash)
        self._trees = TreeCache(state_dir, mirror, self._trash, submodules)
        self._tree_budget = tree_budget

    def has(self, commit: str) -> bool:
        """Whether the tree of the commit exists."""
        return self._trees.find(commit) is not None

    def build_ahead(self, commit: str) -> None:
        """Build the commit's tree."""
        if self._trees.find(commit) is None:
            with self._trees.hold(commit):
                pass
            if self._tree_budget is not None:
                self._trees.collect(unused_since=0, budget=self._tree_budget)

    def prepare(self, path: Path, commit: str, *, keep: bool) -> None:
        """Mount the commit's tree at ``path`` under an empty upper directory."""
        note = self._uppers / path.name / "commit"
        if keep and path.is_mount() and note.is_file() and note.read_text() == commit:
            return
        with self._trees.hold(commit) as tree:
            self._mount(path, tree)

    def clean(self, path: Path) -> None:
        """Unmount; the upper directory is deleted in the background."""
        detach(path)
        if is_mounted(path):
            raise WorktreePoolError(f"{path} is still mounted and cannot be unmounted")
        self._trash.discard(self._uppers / path.name)
        self._drop(self._draft(path))

    def replace(self, path: Path, commit: str, complete: Callable[[Path], None]) -> None:
        """Complete a new upper directory under its own mount, then move it to the path of the old one."""
        draft, place = self._draft(path), self._uppers / path.name
        with self._trees.hold(commit) as tree:
            self._drop(draft)
            try:
                _mount_new(draft / "view", tree, draft)
                complete(draft / "view")
                detach(draft / "view")
            except BaseException:
                self._drop(draft)
                raise
            detach(path)
            self._trash.discard(place)
            self._trash.discard(draft / "work")  # the work directory of a volatile mount cannot be used again
            draft.rename(place)
            (place / "work").mkdir()
            mount_overlay(path, lower=tree.layers, upper=place / "files", work=place / "work")

    def disk_bytes(self, path: Path) -> int:
        """The size of the upper directory: what the holder wrote."""
        return disk_bytes(self._uppers / path.name)

    def _draft(self, path: Path) -> Path:
        return self._uppers / f"{path.name}.new"

    def _drop(self, draft: Path) -> None:
        detach(draft / "view")
        self._trash.discard(draft)

    def discard(self, path: Path) -> None:
        """Unmount and remove the mount point."""
        self.clean(path)
        self._trash.discard(path)

    def wait_for_removals(self, timeout: float) -> bool:
        """Wait until the trash is empty."""
        return self._trash.wait(timeout)

    def fork(self, source: Path, target: Path, commit: str) -> None:
        """Mount ``target`` over a copy of what ``source`` has written."""
        with self._trees.hold(commit) as tree:
            self._mount(target, tree, copy_of=self._uppers / source.name / "files")

    def index_path(self, path: Path, commit: str) -> Path:
        """The index in the tree."""
        del path
        with self._trees.hold(commit) as tree:
            return tree.index

    def recover(self) -> None:
        """After a crash: remove incomplete trees and finish deletions."""
        self._trees.recover()
        self._trash.empty()

    def collect(self, *, unused_since: float) -> None:
        """Remove trees that nobody used since ``unused_since``, and those beyond the budget."""
        self._trees.collect(unused_since=unused_since, budget=self._tree_budget)

    def _mount(self, path: Path, tree: Tree, *, copy_of: Path | None = None) -> None:
        self.clean(path)
        try:
            _mount_new(path, tree, self._uppers / path.name, copy_of=copy_of)
        except OSError as error:
            self.clean(path)
            raise WorktreePoolError(f"the workspace {path} cannot be mounted: {error.strerror}") from error


def _mount_new(view: Path, tree: Tree, place: Path, *, copy_of: Path | None = None) -> None:
    """Mount ``tree`` at ``view`` over a new upper directory in ``place``."""
    (place / "work").mkdir(parents=True)
    view.mkdir(parents=True, exist_ok=True)
    if copy_of is None:
        (place / "files").mkdir()
    else:
        copy_whole(copy_of, place / "files")  # with whiteouts and overlay attributes
    (place / "commit").write_text(tree.commit)
    mount_overlay(view, lower=tree.layers, upper=place / "files", work=place / "work")


def why_overlay_fails(folder: Path) -> str | None:
    """Try an overlay mount below ``folder``: the reason why it fails, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    place = folder / ".overlay-probe"  # a fixed name: the next probe unmounts what a killed one left
    with file_lock(folder / ".overlay-probe.lock", timeout=_PROBE_TIMEOUT):
        _remove_probe(place)
        try:
            return _probe(place)
        finally:
            _remove_probe(place)


def _probe(place: Path) -> str | None:
    for part in ("lower", "upper", "work", "view"):
        (place / part).mkdir(parents=True)
    (place / "lower" / "file").touch()
    try:
        mount_overlay(place / "view", lower=[place / "lower"], upper=place / "upper", work=place / "work")
        (place / "view" / "file").unlink()
    except OSError as error:
        return f"an overlay cannot be mounted there ({error.strerror})"
    return None


def _remove_probe(place: Path) -> None:
    detach(place / "view")
    remove_tree(place)
