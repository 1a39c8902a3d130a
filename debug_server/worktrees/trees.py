"""The cache of checked-out trees: one immutable directory per commit, complete or a layer over a nearby tree.

A tree is built in ``building`` and published by a rename, so an incomplete one is never used. Its directory holds
``root`` (the files and a complete ``.git``), ``layers`` (the commits whose roots make up the tree, uppermost first) and
``bytes``. Files are not synced to disk, so all trees are removed after a reboot.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import detach, list_mounts
from debug_server.errors import WorktreePoolError
from debug_server.worktrees.git import GitPlace, run_git
from debug_server.worktrees.gitdir import write_gitdir, write_head
from debug_server.worktrees.index_timestamps import backdate
from debug_server.worktrees.locks import file_lock, try_lock
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.overlay_mount import mount_overlay
from debug_server.worktrees.submodules import Submodules
from debug_server.worktrees.trash import Trash, disk_bytes

# The lookup of a missing name searches every layer; beyond this depth a new layer is built on the complete tree.
MAX_LAYERS = 8
MAX_LAYER_FILES = 2000
_BUILD_TIMEOUT = 900.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_USED_TREE = re.compile(r"/trees(?:-with-submodules)?/([0-9a-f]{40})/root")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A commit's files, ready to be mounted."""

    commit: str
    layers: tuple[Path, ...]  # uppermost first; the last one is complete

    @property
    def index(self) -> Path:
        """git's index of exactly these files."""
        return self.layers[0] / ".git" / "index"


class TreeCache:
    """Builds and keeps trees below one directory."""

    def __init__(self, folder: Path, mirror: Mirror, trash: Trash, submodules: Submodules | None = None) -> None:
        # The same commit with submodules is another tree.
        self._trees = folder / ("trees" if submodules is None else "trees-with-submodules")
        self._submodules = submodules
        self._building = folder / "building"
        self._locks = folder / "locks"
        self._mirror = mirror
        self._trash = trash
        for path in (self._trees, self._building, self._locks):
            path.mkdir(parents=True, exist_ok=True)

    def find(self, commit: str) -> Tree | None:
        """The tree if it exists; marks it as used."""
        note = self._trees / commit / "layers"
        try:
            names = note.read_text().split()
            os.utime(note)
        except FileNotFoundError:
            return None
        return Tree(commit=commit, layers=tuple(self._trees / name / "root" for name in names))

    @contextmanager
    def hold(self, commit: str) -> Iterator[Tree]:
        """The tree, built if missing; it is not removed before the block ends."""
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT, shared=True):
            yield self.find(commit) or self._build_once(commit)

    def _build_once(self, commit: str) -> Tree:
        with file_lock(self._lock_path(commit), timeout=_BUILD_TIMEOUT):
            if tree := self.find(commit):
                return tree
            if not self._build_on_nearest(commit):
                self._build_whole(commit)
        tree = self.find(commit)
        if tree is None:
            raise WorktreePoolError(f"the tree of {commit} vanished while it was built: was {self._trees} deleted?")
        return tree

    def _build_on_nearest(self, commit: str) -> bool:
        base = self._nearest(commit)
        if base is None:
            return False
        if len(base.layers) >= MAX_LAYERS:
            base = self.find(base.layers[-1].parent.name) or base
        if self._submodules is not None and not self._submodules.same(base.commit, commit):
            return False
        with self._build_folder(commit) as building:
            if not self._build_layer(commit, base, building):
                return False
            self._publish(commit, building, [commit, *(layer.parent.name for layer in base.layers)])
        return True

    def _nearest(self, commit: str) -> Tree | None:
        """The tree of the closest ancestor, else the tree used last."""
        notes = {path.parent.name: path for path in self._trees.glob("*/layers")}
        if not notes:
            return None
        past = self._mirror.ancestors(commit)
        near = next((name for name in past if name in notes), None)
        return self.find(near or max(notes, key=lambda name: notes[name].stat().st_mtime))

    def _build_layer(self, commit: str, base: Tree, building: Path) -> bool:
        """Mount ``base`` and let git switch it to ``commit``: the upper directory is the layer."""
        root, view = building / "root", building / "view"
        for path in (root, building / "work", view):
            path.mkdir()
        try:
            mount_overlay(view, lower=base.layers, upper=root, work=building / "work")
        except OSError:  # too many layers for one page of options, or the base was just removed
            return False
        try:
            place = GitPlace(git_dir=view / ".git", work_tree=view)
            switched = run_git("read-tree", "-m", "-u", base.commit, commit, place=place, timeout=_BUILD_TIMEOUT)
            if not switched.ok:
                return False
            self._write_refs(view / ".git", commit)
        finally:
            detach(view)
        names = _files_of(root)
        if _fits_layer(names):
            backdate(root, root / ".git" / "index", names)
            return True
        return False

    def _build_whole(self, commit: str) -> None:
        with self._build_folder(commit) as building:
            root = building / "root"
            root.mkdir()
            remote = self._mirror.remote_url
            write_gitdir(root / ".git", objects=[self._mirror.objects], head=commit, remote_url=remote)
            place = GitPlace(git_dir=root / ".git", work_tree=root)
            self._mirror.check_out(commit, place)
            self._write_refs(root / ".git", commit)
            backdate(root, root / ".git" / "index", _files_of(root))
            if self._submodules is not None:
                self._submodules.check_out(root, commit)
            self._publish(commit, building, [commit])

    def _write_refs(self, git_dir: Path, commit: str) -> None:
        write_head(git_dir, commit)
        self._mirror.write_refs(git_dir)

    @contextmanager
    def _build_folder(self, commit: str) -> Iterator[Path]:
        building = self._building / f"{commit}-{secrets.token_hex(4)}"
        building.mkdir()
        try:
            yield building
        finally:
            self._trash.discard(building)

    def _publish(self, commit: str, building: Path, layers: list[str]) -> None:
        (building / "layers").write_text("\n".join(layers))
        (building / "bytes").write_text(str(disk_bytes(building / "root")))
        for name in ("work", "view"):
            if (building / name).exists():
                self._trash.discard(building / name)
        building.rename(self._trees / commit)

    def recover(self) -> None:
        """After a crash: remove incomplete trees, and every tree of an earlier boot."""
        self._drop_earlier_boot()
        for building in self._building.iterdir():
            with try_lock(self._lock_path(building.name)) as ours:
                if ours:
                    detach(building / "view")
                    self._trash.discard(building)

    def _drop_earlier_boot(self) -> None:
        mark, boot = self._trees / ".boot", _BOOT_ID.read_text()
        if mark.exists() and mark.read_text() == boot:
            return
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT):
            if not mark.exists() or mark.read_text() != boot:
                for note in self._trees.glob("*/layers"):
                    self._trash.discard(note.parent)
                mark.write_text(boot)

    def collect(self, *, unused_since: float, budget: int | None) -> None:
        """Remove trees last used before ``unused_since`` and, beyond ``budget`` bytes, the least recently used."""
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT):
            while (tree := self._next_to_remove(unused_since, budget)) is not None:
                self._trash.discard(tree)

    def _next_to_remove(self, unused_since: float, budget: int | None) -> Path | None:
        notes = sorted(self._trees.glob("*/layers"), key=lambda note: note.stat().st_mtime)
        over = budget is not None and sum(_recorded_bytes(note.parent) for note in notes) > budget
        carrying = {name for note in notes for name in note.read_text().split()[1:]}
        needed = carrying | self._mounted()
        for note in notes:
            if note.parent.name not in needed and (over or note.stat().st_mtime < unused_since):
                return note.parent
        return None

    def _lock_path(self, commit: str) -> Path:
        return self._locks / commit[:2]  # at most 256 files; two builds that share one run one after the other

    def _mounted(self) -> set[str]:
        mounts = list_mounts(self._trees.parent.parent)
        return {name for mount in mounts for name in _USED_TREE.findall(mount.options)}


def _files_of(root: Path) -> list[bytes]:
    """Every entry of a layer that is not a folder, as git names it; whiteouts of removed files too.

    Not with os.walk, which recurses: folders may be nested deeper than Python's stack.
    """
    top = os.fsencode(root) + b"/"
    names = []
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(top + folder) as entries:
            for entry in entries:
                name = folder + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    names.append(name)
                elif name != b".git":
                    waiting.append(name + b"/")
    return names


def _fits_layer(names: list[bytes]) -> bool:
    """False with a changed ``.gitattributes``, which affects files outside the layer, and for too many files."""
    return len(names) <= MAX_LAYER_FILES and not any(name.rsplit(b"/", 1)[-1] == b".gitattributes" for name in names)


def _recorded_bytes(tree: Path) -> int:
    try:
        return int((tree / "bytes").read_text())
    except (OSError, ValueError):
        return 0
