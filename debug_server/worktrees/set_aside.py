"""Directories that could not be cleaned: noted, never leased again, and tried again from time to time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from debug_server.errors import WorktreePoolError

_LOG = logging.getLogger(__name__)


class SetAside:
    """A folder with one note for each; its name is the directory's, its text the path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, path: Path, *, reason: str) -> None:
        """Note a directory that resists."""
        _LOG.warning("workspace_set_aside", extra={"path": str(path), "reason": reason})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._folder / path.name).write_text(str(path), errors="surrogateescape")
        except OSError as error:  # a full disk: the log has it, and nobody leases that path again
            _LOG.warning("note_failed", extra={"path": str(path), "error": str(error)})

    def retry(self, remove: Callable[[Path], None]) -> None:
        """Remove what can be removed by now."""
        if not self._folder.is_dir():
            return
        for note in self._folder.iterdir():
            try:
                remove(Path(note.read_text(errors="surrogateescape")))
                note.unlink(missing_ok=True)
            except (OSError, WorktreePoolError) as error:
                _LOG.debug("still_set_aside", extra={"path": str(note), "error": str(error)})
