"""Removes environments by last use and disk budget, and what killed builders left; never one that is in use."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from debug_server.runner.environments import leases
from debug_server.runner.environments.build_lock import idle_build_lock
from debug_server.runner.environments.layout import Layout, delete_tree, key_of_directory
from debug_server.runner.environments.seal import Seal, parse_seal, remove_records

_DRAFT = re.compile(r".+\.[0-9a-f]{8}")
GRACE_SECONDS = 60.0  # between ensure() and the hold() of its caller


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageCollection:
    """The result of one garbage collection."""

    removed: tuple[str, ...]  # names of folders
    freed_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    directory: Path
    seal: Seal | None  # None: superseded, withdrawn, or never finished
    idle: float


def collect(layout: Layout, *, max_idle: float | None, max_bytes: int | None, grace: float) -> GarbageCollection:
    """Remove what is idle for ``max_idle`` seconds, then the longest idle until ``max_bytes`` are kept."""
    layout.empty_trash()
    candidates = sorted(_candidates(layout), key=lambda item: -item.idle)
    kept = sum(item.seal.total_bytes for item in candidates if item.seal is not None)
    removed, freed = [], 0
    for item in candidates:
        too_old = max_idle is not None and item.idle > max_idle
        too_much = max_bytes is not None and kept > max_bytes
        if (item.seal is None or too_old or too_much) and _remove(layout, item, grace):
            size = 0 if item.seal is None else item.seal.total_bytes
            removed.append(item.directory.name)
            freed, kept = freed + size, kept - size
    _remove_dangling(layout)
    _remove_temporaries(layout)
    return GarbageCollection(removed=tuple(removed), freed_bytes=freed, kept_bytes=kept)


def remove_superseded(layout: Layout, key: str, *, abandoned: str | None = None) -> None:
    """Remove the unsealed environments of ``key`` that are not in use; the caller holds the build lock.

    ``abandoned`` was never sealed, so no process can use it: it is removed without the grace period.
    """
    seal = parse_seal(layout.seal(key))
    for directory in layout.directories(f"{key}-"):
        if seal is None or seal.directory != directory.name:
            _remove_locked(layout, directory, 0.0 if directory.name == abandoned else GRACE_SECONDS)


def _candidates(layout: Layout) -> list[_Candidate]:
    seals = {}
    for directory in layout.directories():
        key = key_of_directory(directory.name)
        seals[key] = parse_seal(layout.seal(key))
    return [
        _Candidate(
            directory=directory,
            seal=seal if seal is not None and seal.directory == directory.name else None,
            idle=leases.idle_seconds(layout.leases / directory.name),
        )
        for directory in layout.directories()
        for seal in [seals.get(key_of_directory(directory.name))]
    ]


def _remove(layout: Layout, item: _Candidate, grace: float) -> bool:
    with idle_build_lock(layout.lock(key_of_directory(item.directory.name))) as lock:
        if lock is None:
            return False
        if item.seal is None and lock.end_killed_build() == item.directory.name:
            lock.finish()
            grace = 0.0
        return _remove_locked(layout, item.directory, grace)


def _remove_locked(layout: Layout, directory: Path, grace: float) -> bool:
    lease = layout.leases / directory.name
    if leases.idle_seconds(lease) < grace:
        return False
    with leases.exclusive(lease) as alone:
        # Check again under the lock: it may have been used since.
        if not alone:
            return False
        key = key_of_directory(directory.name)
        seal = parse_seal(layout.seal(key))
        if seal is not None and seal.directory == directory.name:
            layout.seal(key).unlink(missing_ok=True)
        layout.remove(directory)
        remove_records(layout, directory.name)
        delete_tree(layout.builds / directory.name)
        lease.unlink(missing_ok=True)
    return True


def _remove_dangling(layout: Layout) -> None:
    _remove_drafts(layout)
    for path in layout.root.iterdir():
        if path.is_symlink() and path.readlink().parent.name == layout.environments.name and not path.exists():
            path.unlink(missing_ok=True)
    for lease in layout.leases.iterdir():
        if not (layout.environments / lease.name.partition("@")[0]).exists():
            lease.unlink(missing_ok=True)


def _remove_temporaries(layout: Layout) -> None:
    """Remove the temporary folders of killed build tools, and the copies of projects that were made for them."""
    for folder in layout.temporaries():
        with idle_build_lock(layout.lock(folder.name.partition(".")[0])) as lock:
            if lock is not None:
                lock.end_killed_build()
                delete_tree(folder)


def _remove_drafts(layout: Layout) -> None:
    """Remove files that a killed process had not renamed to their final name."""
    limit = time.time() - GRACE_SECONDS
    for folder in (layout.root, layout.seals, layout.state, layout.projects):
        for draft in folder.glob("*.????????"):
            with contextlib.suppress(FileNotFoundError):
                if _DRAFT.fullmatch(draft.name) and draft.lstat().st_mtime < limit:
                    delete_tree(draft) if draft.is_dir() and not draft.is_symlink() else draft.unlink()
