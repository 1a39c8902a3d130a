"""Removes stored patches: those that no session names, and beyond a budget the oldest of closed sessions."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from debug_server.store import MetadataStore
from debug_server.worktrees.locks import folder_lock

_LOG = logging.getLogger(__name__)
_LOCK_SECONDS = 10.0
_NEW_SECONDS = 60.0  # the row of a session is added soon after its patch was stored


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    stored_at: float
    size: int


def remove_patches(store: MetadataStore, folder: Path, *, budget: int | None, always: bool) -> int:
    """Remove the patches that are not needed; returns how many bytes were freed.

    Without ``always`` this does nothing while all of them are within the budget. A session that is open needs its
    patch; one that is closed could be run again with it.
    """
    with folder_lock(folder, timeout=_LOCK_SECONDS) as lock:
        if lock is None:  # there is no patch yet, or another process does this
            return 0
        files = sorted(_files(folder), key=lambda file: file.stored_at)
        size = sum(file.size for file in files)
        if not always and (budget is None or size <= budget):
            return 0
        is_open = {sha256[:12]: needed for sha256, needed in store.sessions.patches().items()}
        freed = 0
        for file in files:
            needed = is_open.get(file.path.stem)
            over = budget is not None and size - freed > budget
            if file.stored_at < time.time() - _NEW_SECONDS and (needed is None or (over and not needed)):
                file.path.unlink(missing_ok=True)
                freed += file.size
    if freed:
        _LOG.info("patches_removed", extra={"freed_bytes": freed})
    return freed


def _files(folder: Path) -> Iterator[_File]:
    """The patches, and what killed processes left of storing one."""
    for path in folder.iterdir():
        if path.suffix == ".patch" or ".patch." in path.name:
            with suppress(FileNotFoundError):
                found = path.stat()
                yield _File(path=path, stored_at=found.st_mtime, size=found.st_blocks * 512)
