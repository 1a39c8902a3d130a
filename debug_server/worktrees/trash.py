"""Removes directories out of the caller's way: renamed at once, deleted in the background."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

from debug_server.worktrees.chores import Chores


class Trash:
    """A directory whose contents are being deleted; what a killed process left is deleted by ``empty``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chores = Chores("worktree-trash", daemon=True)
        self._guard = threading.Lock()
        self._known: set[Path] = set()  # what waits to be deleted, or is being

    def throw(self, path: Path) -> None:
        """Make ``path`` vanish now; a missing one is fine."""
        grave = self._folder / secrets.token_hex(8)
        try:
            path.rename(grave)
        except FileNotFoundError:
            return
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
            remove_tree(grave)
        finally:
            with self._guard:
                self._known.discard(grave)


def remove_tree(path: Path) -> None:
    """Delete a directory, also one whose owner took away the right to, or what lies in the place of one.

    Somebody else deleting too is fine.
    """
    with suppress(FileNotFoundError):
        if path.is_symlink() or not path.is_dir():
            path.unlink()
            return
        try:
            shutil.rmtree(path)
        except (OSError, RecursionError):  # rights, another process that deletes too, a thousand folders in each other
            for line in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
                subprocess.run([*line, "--", os.fspath(path)], capture_output=True, check=False)


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
