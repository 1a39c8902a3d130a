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

# A folder is locked microseconds after its creation. A creator without an entry in /proc is dead, or in another pid
# namespace.
_UNLOCKED_SECONDS, _UNSEEN_SECONDS = 60.0, 1.0


@contextmanager
def file_lock(path: Path, *, timeout: float, shared: bool = False) -> Iterator[None]:
    """Hold the lock at ``path``; it ends with the process. WorktreePoolError after ``timeout`` seconds."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _wait(descriptor, timeout=timeout, kind=fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            raise WorktreePoolError(f"the lock {path} was not free within {timeout:g} s: is another server stuck?")
        yield
    finally:
        os.close(descriptor)


@contextmanager
def folder_lock(path: Path, *, timeout: float) -> Iterator[int | None]:
    """Lock a directory itself. Yields its descriptor, for a child to inherit; None if it is not free or is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        free = _wait(descriptor, timeout=timeout, kind=fcntl.LOCK_EX)
        yield descriptor if free and _still_names(path, descriptor) else None
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock if it is free; yields whether it is held."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _try_flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new locked directory that is removed with the block; after a crash ``remove_abandoned`` removes it."""
    parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{os.getpid()}-", dir=parent))
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        path = hidden.rename(parent / hidden.name[1:])  # a folder without a leading dot is always locked
        try:
            yield path
        finally:
            remove_tree(path)
    finally:
        os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Delete the scratch folders of killed processes."""
    for path in parent.glob("*"):
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _is_abandoned(path) if path.name.startswith(".") else _try_flock(descriptor, fcntl.LOCK_EX):
                    remove_tree(path)
            finally:
                os.close(descriptor)


def _is_abandoned(hidden: Path) -> bool:
    maker = Path("/proc") / hidden.name[1:].partition("-")[0]
    return time.time() - hidden.stat().st_mtime > (_UNLOCKED_SECONDS if maker.exists() else _UNSEEN_SECONDS)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_names(path: Path, descriptor: int) -> bool:
    """Whether ``path`` was neither renamed nor removed while we waited."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _wait(descriptor: int, *, timeout: float, kind: int) -> bool:
    # flock has no timeout, and a signal cannot interrupt it in a thread: poll with a growing pause.
    deadline = time.monotonic() + timeout
    pause = 0.0005
    while not _try_flock(descriptor, kind):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    return True
