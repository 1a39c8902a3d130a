"""Open folders in a tree that others can write to: replacing a folder by a link later has no effect."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from debug_server.disk import kernel


class Folder:
    """An open folder; ``path`` leads to it even if it was renamed, and is valid while it is open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def path(self) -> Path:
        """A path for calls that need one; they must not follow a link as last part."""
        return Path(kernel.path_of(self.descriptor))

    @contextmanager
    def below(self, path: str) -> Iterator[Folder]:
        """A folder in it on the same mount; OSError if a part of ``path`` is a link, a mount or not a folder.

        A folder without permissions for its owner gets them first.
        """
        try:
            descriptor = kernel.open_folder_below(self.descriptor, path)
        except PermissionError:
            self._allow(path)
            descriptor = kernel.open_folder_below(self.descriptor, path)
        try:
            yield Folder(descriptor)
        finally:
            os.close(descriptor)

    def _allow(self, path: str) -> None:
        entry = kernel.open_folder_below(self.descriptor, path, kernel.FOLDER_PATH)
        try:
            os.chmod(kernel.path_of(entry), 0o700)  # noqa: PTH101  the opened folder, even if it was renamed
        finally:
            os.close(entry)


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """Open the folder at ``path``; OSError if it is a link or not a folder."""
    descriptor = os.open(path, kernel.FOLDER_PATH)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)
