"""Who uses an environment: shared locks of living holders, and notes about processes that outlive us."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@contextlib.contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold the lease file ``path`` together with other users; its time becomes now, at both ends."""
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
    """Try to be alone with the lease file ``path``; yields whether it worked, and nobody can join meanwhile."""
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
    """Note that process ``pid`` uses the environment until it ends, whatever becomes of us."""
    start = start_of(pid)
    if start is not None:
        note = path.with_name(f"{path.name}@{pid}")
        note.write_text(f"{start} {boot_id()}", "utf-8")


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
        return boot == boot_id() and start_of(int(note.name.rpartition("@")[2])) == int(start)
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


def start_of(pid: int) -> int | None:
    """The start time of a living process, which together with its number names it for good."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@cache
def boot_id() -> str:
    """This boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
