"""Tracks who uses an environment: shared locks of processes, and notes about keepers that outlive them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from debug_server.runner.keeper.linux import boot_id, is_alive, start_time


@contextlib.contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a shared lock on the lease file ``path``; its mtime is updated at the beginning and the end."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.utime(fd)
        yield
        os.utime(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Try to lock the lease file ``path`` exclusively; yields whether no process uses the environment.

    While the lock is held, no process can begin to use it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield not _assigned(path)
    finally:
        os.close(fd)


def assign(path: Path, pid: int) -> None:
    """Note that process ``pid`` uses the environment until it ends, even if this process ends first."""
    start = start_time(pid)
    if start is not None and is_alive(pid, start):
        note = path.with_name(f"{path.name}@{pid}")
        note.write_text(f"{start} {this_boot()}", "utf-8")


def _assigned(path: Path) -> bool:
    living = False
    for note in path.parent.glob(f"{path.name}@*"):
        if _is_living(note):
            living = True
        else:
            note.unlink(missing_ok=True)
    return living


def _is_living(note: Path) -> bool:
    try:
        start, boot = note.read_text("utf-8").split()
        return boot == this_boot() and is_alive(int(note.name.rpartition("@")[2]), int(start))
    except (OSError, ValueError):
        return False


def last_use(path: Path) -> float:
    """When the lease file ``path`` was last used, in seconds since the epoch; 0 if never."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def idle_seconds(path: Path) -> float:
    """How long nobody has used the environment."""
    return time.time() - last_use(path)


@cache
def this_boot() -> str:
    """The id of this boot, read once."""
    return boot_id()
