"""Removes directories fast: renames them at once and deletes them in the background."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from debug_server.disk import release_entry, remove_tree
from debug_server.worktrees.background_queue import BackgroundQueue

_LOG = logging.getLogger(__name__)


class Trash:
    """A directory whose contents are deleted in the background; ``empty`` deletes what a killed process left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._background = BackgroundQueue("worktree-trash", daemon=True)
        self._guard = threading.Lock()
        self._known: set[Path] = set()  # queued, or being deleted
        self._logged: set[Path] = set()  # cannot be deleted, and was logged

    def discard(self, path: Path) -> None:
        """Move ``path`` away now and delete it later; a missing one is fine. OSError if it cannot be renamed."""
        target = self._folder / secrets.token_hex(8)
        try:
            path.rename(target)
        except FileNotFoundError:
            return
        except OSError:  # something is mounted there, or its attributes forbid it
            release_entry(path)
            path.rename(target)
        self._delete_later(target)

    def empty(self) -> None:
        """Delete everything in the directory, also what a killed process left."""
        for path in self._folder.iterdir():
            self._delete_later(path)

    def wait(self, timeout: float) -> bool:
        """Wait until everything discarded so far is deleted; False after ``timeout`` seconds."""
        done = threading.Event()
        self._background.add(done.set)
        return done.wait(timeout)

    def _delete_later(self, target: Path) -> None:
        with self._guard:
            if target in self._known:
                return
            self._known.add(target)
        self._background.add(partial(self._delete, target))

    def _delete(self, target: Path) -> None:
        try:
            left = remove_tree(target)
            if left and target not in self._logged:
                self._logged.add(target)
                _LOG.warning("removal_incomplete", extra={"path": str(target), "left": [str(item) for item in left]})
        finally:
            with self._guard:
                self._known.discard(target)


def disk_bytes(root: Path) -> int:
    """The disk space of the files below ``root``."""
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
