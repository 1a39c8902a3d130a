"""Access to a folder that never leads outside of it, whatever links it contains."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self

from runners.kit.errors import JobError
from runners.kit.text import single_line

MAX_BYTES = 16 << 20
LOCK_SECONDS = 30.0


class Tree:
    """An open folder; paths are relative to it, and each part of a path is opened without following links.

    A check before opening would be a race: a folder can become a link in between. Here each part is opened from the
    folder that was opened before.
    """

    def __init__(self, root: Path | str = ".") -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = Path(root).resolve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    # --- reading

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """The bytes of a regular file; None if there is no file."""
        with self._folder(path, make=False) as (folder, name):
            if folder is None:
                return None
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise _refused(path, error) from error
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise JobError(f"{single_line(path)} is not a regular file")
            if found.st_size > limit:
                raise JobError(f"{single_line(path)} has {found.st_size} bytes (limit {limit})")
            return file.read(limit)

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, without links; empty if it does not exist."""
        return self._names(path, lambda entry: entry.is_dir(follow_symlinks=False))

    def files(self, path: str) -> list[str]:
        """The names of the regular files in a folder, without links; empty if it does not exist."""
        return self._names(path, lambda entry: entry.is_file(follow_symlinks=False))

    def _names(self, path: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with self._folder(f"{path}/.", make=False) as (folder, _):
            if folder is None:
                return []
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if wanted(entry))

    # --- writing

    def write(self, path: str, data: bytes) -> bool:
        """Replace a file as a whole; False if it already contains ``data``."""
        if self.read(path) == data:
            return False
        with self.replacing(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return True

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[BinaryIO]:
        """A new file that replaces ``path`` at the end of the block: readers see the old bytes or the new."""
        with self._folder(path, make=True) as (folder, name):
            assert folder is not None
            mode = _mode(folder, name)
            temporary = f".{name[:100]}.{os.getpid()}.{time.monotonic_ns()}.new"
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    if mode is not None:
                        os.fchmod(fd, mode)
                    yield file
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def move(self, old: str, new: str) -> None:
        """Rename a file; hold the lock, so that nobody creates ``new`` meanwhile."""
        if self.read(new) is not None:
            raise JobError(f"{new} already exists")
        with self._folder(old, make=False) as (source, name), self._folder(new, make=True) as (target, other):
            os.rename(name, other, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, path: str) -> bool:
        """Delete a file; False if there is none."""
        with self._folder(path, make=False) as (folder, name):
            if folder is None:
                return False
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False
        return True

    def prune(self, path: str) -> None:
        """Delete the empty folders above ``path``."""
        parents = path_parts(path)[:-1]
        with contextlib.suppress(OSError):  # not empty, or already deleted
            while parents:
                with self._folder("/".join(parents), make=False) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
                parents.pop()

    def size(self, path: str) -> int | None:
        """The size of a regular file; None if there is none."""
        with self._folder(path, make=False) as (folder, name):
            if folder is None:
                return None
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
            return found.st_size if stat.S_ISREG(found.st_mode) else None

    # --- locking

    @contextlib.contextmanager
    def lock(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Lock the folder against other programs. The lock is on the folder itself, so no lock file is left."""
        deadline = time.monotonic() + seconds
        # Opened again: a lock belongs to an open file, and must also work between threads of one process.
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            while not _try_lock(fd):
                if time.monotonic() > deadline:
                    raise JobError(f"{self.path} was locked by another program for {seconds:g} s: try again")
                time.sleep(0.02)
            yield
        finally:
            os.close(fd)

    # --- path parts

    @contextlib.contextmanager
    def _folder(self, path: str, *, make: bool) -> Iterator[tuple[int | None, str]]:
        """(open parent folder, last name) of ``path``; the folder is None if it is missing and ``make`` is false."""
        *parents, name = path_parts(path)
        fd: int | None = os.dup(self._fd)
        try:
            for index, step in enumerate(parents):
                assert fd is not None
                below = _enter(fd, step, "/".join(parents[: index + 1]), make=make)
                os.close(fd)
                fd = below
                if fd is None:
                    break
            yield fd, name
        finally:
            if fd is not None:
                os.close(fd)


def path_parts(path: str) -> list[str]:
    """The parts of a relative path; JobError if it could lead outside."""
    parts = PurePosixPath(path).parts
    if path.endswith("/."):
        parts = (*parts, ".")
    if "\0" in path or not parts or path.startswith("/") or ".." in parts:
        raise JobError(f"{single_line(path, 80)!r} is not a path inside the repository")
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise JobError(f"{single_line(path, 80)!r} has a name of more than 255 bytes")
    return list(parts)


def _enter(folder: int, step: str, path: str, *, make: bool) -> int | None:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(step, dir_fd=folder)
    try:
        return os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: str, error: OSError) -> JobError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        return JobError(f"{single_line(path)} is a link or not a folder: links are not followed")
    return JobError(f"{single_line(path)}: {error.strerror}")


def _mode(folder: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
