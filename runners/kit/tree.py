"""A folder that a program may work in: nothing it reads or writes is outside, whatever links lie in the way."""

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

from runners.kit.refusal import Refusal
from runners.kit.words import single_line

LARGEST = 16 << 20
LOCK_SECONDS = 30.0


class Tree:
    """A folder, held open. Paths are relative to it and every step is opened without following a link.

    Checking a path and then opening it would leave a moment in which a folder becomes a link; here the opened folder is
    what the next step starts from.
    """

    def __init__(self, root: Path | str = ".") -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = Path(root).resolve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._fd)

    # --- reading

    def read(self, path: str, limit: int = LARGEST) -> bytes | None:
        """A regular file's bytes; None when there is none."""
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
                raise Refusal(f"{single_line(path)} is not a regular file")
            if found.st_size > limit:
                raise Refusal(f"{single_line(path)} has {found.st_size} bytes, at most {limit} are read")
            return file.read(limit)

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, links left out; empty when there is none."""
        return self._names(path, lambda entry: entry.is_dir(follow_symlinks=False))

    def files(self, path: str) -> list[str]:
        """The names of the regular files in a folder, links left out; empty when there is none."""
        return self._names(path, lambda entry: entry.is_file(follow_symlinks=False))

    def _names(self, path: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with self._folder(f"{path}/.", make=False) as (folder, _):
            if folder is None:
                return []
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if wanted(entry))

    # --- writing

    def write(self, path: str, data: bytes) -> bool:
        """Replace a file as a whole; false when it already holds ``data``."""
        if self.read(path) == data:
            return False
        with self.replacing(path) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return True

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[BinaryIO]:
        """A file that takes the place of ``path`` when it is complete: readers see the old bytes or the new."""
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
        """Give a file another place; hold the lock, so that the place stays free."""
        if self.read(new) is not None:
            raise Refusal(f"{new} is already there")
        with self._folder(old, make=False) as (source, name), self._folder(new, make=True) as (target, other):
            os.rename(name, other, src_dir_fd=source, dst_dir_fd=target)

    def remove(self, path: str) -> bool:
        """Delete a file; false when there was none."""
        with self._folder(path, make=False) as (folder, name):
            if folder is None:
                return False
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False
        return True

    def prune(self, path: str) -> None:
        """Delete the folders above ``path`` that hold nothing any more."""
        parents = steps(path)[:-1]
        with contextlib.suppress(OSError):  # not empty, or gone already
            while parents:
                with self._folder("/".join(parents), make=False) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
                parents.pop()

    def size(self, path: str) -> int | None:
        """How many bytes a regular file has; None when there is none."""
        with self._folder(path, make=False) as (folder, name):
            if folder is None:
                return None
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return None
            return found.st_size if stat.S_ISREG(found.st_mode) else None

    # --- one at a time

    @contextlib.contextmanager
    def lock(self, seconds: float = LOCK_SECONDS) -> Iterator[None]:
        """Keep other programs out of this folder. The lock is on the folder itself: it leaves no file behind."""
        deadline = time.monotonic() + seconds
        # Opened anew: a lock belongs to an open file, and threads of one process must keep each other out as well.
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            while not _try_lock(fd):
                if time.monotonic() > deadline:
                    raise Refusal(f"another program has worked in {self.path} for {seconds:g} s; try again")
                time.sleep(0.02)
            yield
        finally:
            os.close(fd)

    # --- steps

    @contextlib.contextmanager
    def _folder(self, path: str, *, make: bool) -> Iterator[tuple[int | None, str]]:
        """(the open folder of ``path``, its last name); the folder is None when it is missing and not to be made."""
        *parents, name = steps(path)
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


def steps(path: str) -> list[str]:
    """The names of a relative path; one that could lead outside is refused."""
    parts = PurePosixPath(path).parts
    if path.endswith("/."):
        parts = (*parts, ".")
    if "\0" in path or not parts or path.startswith("/") or ".." in parts:
        raise Refusal(f"{single_line(path, 80)!r} is not a path inside the repository")
    if any(len(os.fsencode(part)) > 255 for part in parts):
        raise Refusal(f"{single_line(path, 80)!r} has a name of more than 255 bytes")
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


def _refused(path: str, error: OSError) -> Refusal:
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        return Refusal(f"{single_line(path)} is a link or not a folder; links are not followed")
    return Refusal(f"{single_line(path)}: {error.strerror}")


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
