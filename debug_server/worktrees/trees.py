"""The cache of checked-out trees: one immutable directory per commit, whole or a layer over a nearby one.

A tree is built under ``building`` and published by a rename, so a killed build leaves nothing that could be served.
Its directory holds ``root`` (the files and a ready-made ``.git``), ``layers`` (the commits whose roots make up the
tree, uppermost first) and ``bytes``. A tree is a cache of the running kernel's lifetime: files were never synced, so
after a reboot all are dropped.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.errors import WorktreePoolError
from debug_server.worktrees.git import GitPlace, error_for, run_git
from debug_server.worktrees.gitdir import write_gitdir, write_head
from debug_server.worktrees.index_dates import date_back
from debug_server.worktrees.locks import file_lock, try_lock
from debug_server.worktrees.mirror import Mirror
from debug_server.worktrees.mount import detach, list_mounts, mount_overlay
from debug_server.worktrees.submodules import Submodules
from debug_server.worktrees.trash import Trash, disk_bytes

# Every lookup of a missing name asks each layer; past this depth a new layer starts from the whole tree again.
MAX_LAYERS = 8
MAX_LAYER_FILES = 2000
_BUILD_TIMEOUT = 900.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_USED_TREE = re.compile(r"/trees(?:-with-submodules)?/([0-9a-f]{40})/root")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A commit's files, ready to be mounted."""

    commit: str
    layers: tuple[Path, ...]  # uppermost first; the last one is whole

    @property
    def index(self) -> Path:
        """git's index of exactly these files."""
        return self.layers[0] / ".git" / "index"


class TreeCache:
    """Builds and keeps trees below one directory."""

    def __init__(self, folder: Path, mirror: Mirror, trash: Trash, submodules: Submodules | None = None) -> None:
        # With its submodules a commit is another tree.
        self._trees = folder / ("trees" if submodules is None else "trees-with-submodules")
        self._submodules = submodules
        self._building = folder / "building"
        self._locks = folder / "locks"
        self._mirror = mirror
        self._trash = trash
        for path in (self._trees, self._building, self._locks):
            path.mkdir(parents=True, exist_ok=True)

    def find(self, commit: str) -> Tree | None:
        """The tree if it is there; marks it as used."""
        note = self._trees / commit / "layers"
        try:
            names = note.read_text().split()
            os.utime(note)
        except FileNotFoundError:
            return None
        return Tree(commit=commit, layers=tuple(self._trees / name / "root" for name in names))

    @contextmanager
    def hold(self, commit: str) -> Iterator[Tree]:
        """The tree, built if need be; no collection removes it before the block ends."""
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT, shared=True):
            yield self.find(commit) or self._build_once(commit)

    def _build_once(self, commit: str) -> Tree:
        with file_lock(self._lock_of(commit), timeout=_BUILD_TIMEOUT):
            if tree := self.find(commit):
                return tree
            if not self._build_near(commit):
                self._build_whole(commit)
        tree = self.find(commit)
        if tree is None:
            raise WorktreePoolError(f"the tree of {commit} vanished while it was built: was {self._trees} removed?")
        return tree

    def _build_near(self, commit: str) -> bool:
        base = self._nearest(commit)
        if base is None:
            return False
        if len(base.layers) >= MAX_LAYERS:
            base = self.find(base.layers[-1].parent.name) or base
        if self._submodules is not None and not self._submodules.same(base.commit, commit):
            return False
        with self._site(commit) as site:
            if not self._layer(commit, base, site):
                return False
            self._publish(commit, site, [commit, *(layer.parent.name for layer in base.layers)])
        return True

    def _nearest(self, commit: str) -> Tree | None:
        """The closest ancestor that is known, else the tree used last."""
        notes = {path.parent.name: path for path in self._trees.glob("*/layers")}
        if not notes:
            return None
        past = self._mirror.ancestors(commit)
        near = next((name for name in past if name in notes), None)
        return self.find(near or max(notes, key=lambda name: notes[name].stat().st_mtime))

    def _layer(self, commit: str, base: Tree, site: Path) -> bool:
        """Let git itself switch a mount of ``base`` to ``commit``: its upper directory is the layer."""
        root, view = site / "root", site / "view"
        for path in (root, site / "work", view):
            path.mkdir()
        try:
            mount_overlay(view, lower=base.layers, upper=root, work=site / "work")
        except OSError:  # too many layers for one page of options, or a base that has just been lost
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
        if _is_exact(names):
            date_back(root, root / ".git" / "index", names)
            return True
        return False

    def _build_whole(self, commit: str) -> None:
        with self._site(commit) as site:
            root = site / "root"
            root.mkdir()
            remote = self._mirror.remote_url
            write_gitdir(root / ".git", objects=[self._mirror.objects], head=commit, remote_url=remote)
            place = GitPlace(git_dir=root / ".git", work_tree=root)
            self._check_out(commit, place)
            self._write_refs(root / ".git", commit)
            date_back(root, root / ".git" / "index", _files_of(root))
            if self._submodules is not None:
                self._submodules.fill(root, commit)
            self._publish(commit, site, [commit])

    def _check_out(self, commit: str, place: GitPlace) -> None:
        arguments = ("-c", "checkout.workers=0", "read-tree", "--reset", "-u", commit)
        result = run_git(*arguments, place=place, timeout=_BUILD_TIMEOUT)
        if result.corrupt:
            self._mirror.rebuild()
            result = run_git(*arguments, place=place, timeout=_BUILD_TIMEOUT)
        if not result.ok:
            raise error_for(result, f"checking out {commit}")

    def _write_refs(self, git_dir: Path, commit: str) -> None:
        write_head(git_dir, commit)
        self._mirror.write_refs(git_dir)

    @contextmanager
    def _site(self, commit: str) -> Iterator[Path]:
        site = self._building / f"{commit}-{secrets.token_hex(4)}"
        site.mkdir()
        try:
            yield site
        finally:
            self._trash.throw(site)

    def _publish(self, commit: str, site: Path, layers: list[str]) -> None:
        (site / "layers").write_text("\n".join(layers))
        (site / "bytes").write_text(str(disk_bytes(site / "root")))
        for name in ("work", "view"):
            if (site / name).exists():
                self._trash.throw(site / name)
        site.rename(self._trees / commit)

    def recover(self) -> None:
        """Remove what killed builders left, and every tree of an earlier boot."""
        self._drop_earlier_boot()
        for site in self._building.iterdir():
            with try_lock(self._lock_of(site.name)) as ours:
                if ours:
                    detach(site / "view")
                    self._trash.throw(site)

    def _drop_earlier_boot(self) -> None:
        mark, boot = self._trees / ".boot", _BOOT_ID.read_text()
        if mark.exists() and mark.read_text() == boot:
            return
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT):
            if not mark.exists() or mark.read_text() != boot:
                for note in self._trees.glob("*/layers"):
                    self._trash.throw(note.parent)
                mark.write_text(boot)

    def collect(self, *, unused_since: float, budget: int | None) -> None:
        """Remove trees last used before ``unused_since`` and, beyond ``budget`` bytes, the least recently used."""
        with file_lock(self._locks / "collect", timeout=_BUILD_TIMEOUT):
            while (tree := self._superfluous(unused_since, budget)) is not None:
                self._trash.throw(tree)

    def _superfluous(self, unused_since: float, budget: int | None) -> Path | None:
        notes = sorted(self._trees.glob("*/layers"), key=lambda note: note.stat().st_mtime)
        over = budget is not None and sum(_recorded_bytes(note.parent) for note in notes) > budget
        carrying = {name for note in notes for name in note.read_text().split()[1:]}
        needed = carrying | self._mounted()
        for note in notes:
            if note.parent.name not in needed and (over or note.stat().st_mtime < unused_since):
                return note.parent
        return None

    def _lock_of(self, commit: str) -> Path:
        return self._locks / commit[:2]  # a bounded number of files; two builds that share one just take turns

    def _mounted(self) -> set[str]:
        mounts = list_mounts(self._trees.parent.parent)
        return {name for mount in mounts for name in _USED_TREE.findall(mount.options)}


def _files_of(root: Path) -> list[bytes]:
    """Every entry of a layer that is no folder, as git names it; whiteouts of removed files too.

    With a list of its own: os.walk recurses, and a commit may hold folders deeper than Python's stack.
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


def _is_exact(names: list[bytes]) -> bool:
    """A changed ``.gitattributes`` changes files that the layer does not hold; a huge layer is no saving."""
    return len(names) <= MAX_LAYER_FILES and not any(name.rsplit(b"/", 1)[-1] == b".gitattributes" for name in names)


def _recorded_bytes(tree: Path) -> int:
    try:
        return int((tree / "bytes").read_text())
    except (OSError, ValueError):
        return 0
