"""Copies a repository's files into a snapshot: only changed files, each as a whole, never through a link."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runners.kit.errors import JobError
from runners.kit.text import checked_name
from runners.kit.tree import Tree

MANIFESTS = ".manifests"
SKIPPED = {".git"}
# Nanoseconds. A second change within one clock tick does not change the mtime, so files that were changed that
# recently are copied again by the next sync.
TICK = 20_000_000
LARGEST_MANIFEST = 512 << 20

Stamp = list[int]  # size, mtime, ctime, inode: every edit changes one of them
Manifest = dict[str, Stamp]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The result of one sync."""

    files: int  # in the repository
    copied: int
    removed: int


def sync(snapshots: Path, repository: str, source: Path, *, force: bool = False) -> SyncResult:
    """Copy the files of ``source`` to ``snapshots/repository``; with ``force`` also those that look unchanged."""
    folder = snapshots / checked_name(repository, "repository")
    folder.mkdir(parents=True, exist_ok=True)
    with Tree(snapshots) as target, Tree(folder) as own, own.lock():
        manifest = f"{MANIFESTS}/{repository}.json"
        known = _read_manifest(target, manifest)
        began = time.time_ns()
        found = {path: stamp for path, stamp, _ in _files(source, snapshots)}
        deleted = [path for path in known if path not in found]
        for path in deleted:
            own.remove(path)
            own.prune(path)
        copied, stamps = _copy(source, snapshots, own, {} if force else known, began)
        target.write(manifest, json.dumps(stamps).encode())
    return SyncResult(files=len(found), copied=copied, removed=len(deleted))


def _copy(source: Path, snapshots: Path, own: Tree, known: Manifest, began: int) -> tuple[int, Manifest]:
    """Copy changed files; returns their number and all stamps, an empty one for a file to copy again next time."""
    copied, stamps = 0, Manifest()
    for path, stamp, fd in _files(source, snapshots, opened=True):
        assert fd is not None
        with os.fdopen(fd, "rb") as file:
            if known.get(path) == stamp and own.size(path) == stamp[0]:
                stamps[path] = stamp
                continue
            with own.replacing(path) as new:
                shutil.copyfileobj(file, new, 1 << 20)
                os.fchmod(new.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o777)
            copied += 1
            is_stable = _stamp(os.fstat(file.fileno())) == stamp and max(stamp[1:3]) < began - TICK
            stamps[path] = stamp if is_stable else []
    return copied, stamps


def _files(source: Path, snapshots: Path, *, opened: bool = False) -> Iterator[tuple[str, Stamp, int | None]]:
    """(path, stamp, open file) of each regular file, walked without following links."""
    try:
        own = snapshots.stat()
        if not source.is_dir():
            raise JobError(f"{source} is not a folder")
    except OSError as error:
        raise JobError(f"{error.filename}: {error.strerror}") from error
    for folder, folders, files, fd in os.fwalk(source, follow_symlinks=False):
        folders[:] = sorted(item for item in folders if item not in SKIPPED and not _same(item, fd, own))
        for item in sorted(files):
            try:
                found = os.stat(item, dir_fd=fd, follow_symlinks=False)
                if item in SKIPPED or not stat.S_ISREG(found.st_mode):
                    continue
                file = os.open(item, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd) if opened else None
            except FileNotFoundError:
                continue  # deleted since the folder was listed
            path = str((Path(folder) / item).relative_to(source))
            yield path, _stamp(found if file is None else os.fstat(file)), file


def _same(item: str, fd: int, own: os.stat_result) -> bool:
    try:
        found = os.stat(item, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def _stamp(found: os.stat_result) -> Stamp:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _read_manifest(target: Tree, path: str) -> Manifest:
    """The stamps of the last sync; an unreadable file counts as empty."""
    try:
        value = json.loads(target.read(path, limit=LARGEST_MANIFEST) or b"{}")
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}
