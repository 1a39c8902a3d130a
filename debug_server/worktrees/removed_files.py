"""Removes the mirror and the workspaces of a repository that is no longer registered.

    rename to .removed-* -> the name of the repository becomes free -> delete

What a killed process left is deleted by ``remove_renamed``.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from pathlib import Path

from debug_server.disk import release_entry, remove_tree

_LOG = logging.getLogger(__name__)
_PREFIX = ".removed-"
_NOTES = ("fetched", "lock", "repacked")  # files beside the mirror


def rename_files(*, bare_path: Path, worktree_root: Path) -> None:
    """Rename a mirror, those of its submodules, and ``worktree_root``; unmount what is mounted there."""
    for path in (worktree_root, bare_path, bare_path.with_name(f"{bare_path.name}.submodules")):
        if path.exists():
            release_entry(path)  # what is still mounted there
            with suppress(FileNotFoundError):
                path.rename(path.with_name(f"{_PREFIX}{secrets.token_hex(8)}"))
    for note in _NOTES:
        bare_path.with_name(f".{bare_path.name}.{note}").unlink(missing_ok=True)


def remove_renamed(folder: Path) -> None:
    """Delete what was renamed in a folder; leftovers are logged, and deleted by the next call."""
    for path in folder.glob(f"{_PREFIX}*"):
        if left := remove_tree(path):
            _LOG.warning("removal_incomplete", extra={"path": str(path), "left": [str(item) for item in left]})
