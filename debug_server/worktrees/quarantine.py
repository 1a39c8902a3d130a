"""Directories that could not be cleaned: recorded, never leased again, and removed by a later retry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from debug_server.errors import WorktreePoolError

_LOG = logging.getLogger(__name__)


class Quarantine:
    """A folder with one file per directory: named like the directory, with its path as content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, path: Path, *, reason: str) -> None:
        """Record a directory that cannot be cleaned."""
        _LOG.warning("workspace_quarantined", extra={"path": str(path), "reason": reason})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / path.name).write_text(str(path), errors="surrogateescape")
        except OSError as error:  # a full disk: the path is in the log, and is not leased again
            _LOG.warning("quarantine_not_recorded", extra={"path": str(path), "error": str(error)})

    def retry(self, remove: Callable[[Path], None]) -> None:
        """Remove the directories that can be removed now."""
        if not self._folder.is_dir():
            return
        for note in self._folder.iterdir():
            try:
                remove(Path(note.read_text(errors="surrogateescape")))
                note.unlink(missing_ok=True)
            except (OSError, WorktreePoolError) as error:
                _LOG.debug("still_quarantined", extra={"path": str(note), "error": str(error)})
