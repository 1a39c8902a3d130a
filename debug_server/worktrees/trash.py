"""Removes directories out of the caller's way: renamed at once, deleted in the background."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from debug_server.disk import release_entry, remove_tree
from debug_server.worktrees.chores import Chores

_LOG = logging.getLogger(__name__)


class Trash:
    """A directory whose contents are being deleted; what a killed process left is deleted by ``empty``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chores = Chores("worktree-trash", daemon=True)
        self._guard = threading.Lock()
        self._known: set[Path] = set()  # what waits to be deleted, or is being
        self._told: set[Path] = set()  # what resists, and was logged

    def throw(self, path: Path) -> None:
        """Make ``path`` vanish now; a missing one is fine. OSError where it cannot be renamed."""
        grave = self._folder / secrets.token_hex(8)
        try:
            path.rename(grave)
        except FileNotFoundError:
            return
        except OSError:  # something is mounted there, or its attributes forbid it
            release_entry(path)
            path.rename(grave)
        self._delete_later(grave)

    def empty(self) -> None:
        """Have everything deleted that is here, also what a killed process left."""
        for path in self._folder.iterdir():
            self._delete_later(path)

    def _delete_later(self, grave: Path) -> None:
        with self._guard:
            if grave in self._known:
                return
            self._known.add(grave)
        self._chores.add(partial(self._delete, grave))

    def _delete(self, grave: Path) -> None:
        try:
            left = remove_tree(grave)
            if left and grave not in self._told:
                self._told.add(grave)
                _LOG.warning("removal_incomplete", extra={"path": str(grave), "left": [str(item) for item in left]})
        finally:
            with self._guard:
                self._known.discard(grave)


def disk_bytes(root: Path) -> int:
    """What the files below ``root`` take on the disk."""
    total = 0
    waiting = [os.fspath(root)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            total += 4096
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total
