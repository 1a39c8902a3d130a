"""Open folders in a tree that others can write to: replacing a folder by a link later has no effect."""

from __future__ import annotations

import errno
import os
import stat
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

    def open_file(self, path: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of a regular file in it on the same mount; OSError if a part of ``path`` is a link.

        Anything else is refused too, and not waited for: a FIFO without a writer would block.
        """
        descriptor = kernel.open_folder_below(
            self.descriptor, path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return descriptor

    def read(self, path: str, most: int) -> bytes:
        """The first ``most`` bytes of such a file."""
        with os.fdopen(self.open_file(path), "rb") as file:
            return file.read(most)

    def names(self, path: str = ".") -> list[str]:
        """What is in it, or in a folder in it; empty if that cannot be opened without following a link."""
        try:
            descriptor = kernel.open_folder_below(self.descriptor, path)
        except OSError:
            return []
        try:
            return sorted(os.listdir(descriptor))  # noqa: PTH208  by descriptor
        finally:
            os.close(descriptor)

    def _allow(self, path: str) -> None:
        entry = kernel.open_folder_below(self.descriptor, path, kernel.FOLDER_PATH)
        try:
            os.chmod(kernel.path_of(entry), 0o700)  # noqa: PTH101  the opened folder, even if it was renamed
        finally:
            os.close(entry)


def read_bounded(path: Path, most: int) -> bytes:
    """A regular file's bytes; OSError for a link, for more than ``most``, and for what would have to be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """Open the folder at ``path``; OSError if it is a link or not a folder."""
    descriptor = os.open(path, kernel.FOLDER_PATH)
    try:
        yield Folder(descriptor)
    finally:
        os.close(descriptor)
