"""File locks between threads and processes, with a deadline."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from debug_server.disk import remove_tree
from debug_server.errors import WorktreePoolError

# Between a folder and its lock lie microseconds. A maker that cannot be seen is dead, or in another pid namespace.
_UNLOCKED_SECONDS, _UNSEEN_SECONDS = 60.0, 1.0


@contextmanager
def file_lock(path: Path, *, timeout: float, shared: bool = False) -> Iterator[None]:
    """Hold the lock at ``path``; it falls with the process. WorktreePoolError when ``timeout`` seconds pass."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _wait(descriptor, timeout=timeout, kind=fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            raise WorktreePoolError(f"the lock {path} was not free within {timeout:g} s: is another server stuck?")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def folder_lock(path: Path, *, timeout: float) -> Iterator[int | None]:
    """Hold a directory's own lock: its descriptor, for a child to hold it too; None if it is not free or is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        free = _wait(descriptor, timeout=timeout, kind=fcntl.LOCK_EX)
        yield descriptor if free and _names(path, descriptor) else None
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock if nobody else does; the value says whether we do."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _take(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """A new directory that goes with the block; one whose maker was killed is known by ``sweep_private``."""
    parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{os.getpid()}-", dir=parent))
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        path = hidden.rename(parent / hidden.name[1:])  # what can be seen is locked
        try:
            yield path
        finally:
            remove_tree(path)
    finally:
        os.close(descriptor)


def sweep_private(parent: Path) -> None:
    """Delete the private folders of killed processes."""
    for path in parent.glob("*"):
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _never_locked(path) if path.name.startswith(".") else _take(descriptor, fcntl.LOCK_EX):
                    remove_tree(path)
            finally:
                os.close(descriptor)


def _never_locked(hidden: Path) -> bool:
    maker = Path("/proc") / hidden.name[1:].partition("-")[0]
    return time.time() - hidden.stat().st_mtime > (_UNLOCKED_SECONDS if maker.exists() else _UNSEEN_SECONDS)


def _take(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _names(path: Path, descriptor: int) -> bool:
    """Whether it was neither renamed nor removed while we waited."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _wait(descriptor: int, *, timeout: float, kind: int) -> bool:
    # flock has no deadline of its own and a signal may not interrupt a thread: look again, a little later each time.
    deadline = time.monotonic() + timeout
    pause = 0.0005
    while not _take(descriptor, kind):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return True
