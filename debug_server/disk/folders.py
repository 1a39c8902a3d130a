"""Folders of a tree that others could write to, held open: whoever puts a link in their place later gains nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from debug_server.disk import kernel


class Folder:
    """An open folder; ``path`` leads to it whatever its name stands for by now, and is valid while it is open."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @property
    def path(self) -> Path:
        """For calls that take a path; a last part that is a link must not be followed by them."""
        return Path(kernel.path_of(self.descriptor))

    @contextmanager
    def below(self, path: str) -> Iterator[Folder]:
        """A folder in it on the same mount; OSError if a part of ``path`` is a link, a mount or no folder.

        One that its owner may not list is given that right first.
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
            os.chmod(kernel.path_of(entry), 0o700)  # noqa: PTH101  the folder itself, whatever its name is by now
        finally:
            os.close(entry)


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """The folder at ``path``; OSError if that is a link or no folder."""
    descriptor = os.open(path, kernel.FOLDER_PATH)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)
