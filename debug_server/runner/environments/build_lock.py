"""The lock for building one environment, and the removal of what a killed builder left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from debug_server.errors import EnvironmentBuildError
from debug_server.ports import LogSink
from debug_server.runner.cancellation import Cancellation
from debug_server.runner.environments.build_processes import kill_build

_NOTICE_SECONDS = 5.0


class BuildLock:
    """The held lock; its file names the folder that is being built.

    A build that ends empties the file. If a new holder finds a folder in it, the holder before was killed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def begin(self, target: Path) -> None:
        """Write the target folder into the lock file, before its first file is created."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps({"target": target.name, "pid": os.getpid()}).encode(), 0)

    def finish(self) -> None:
        """Empty the lock file: nothing is left to clean up."""
        os.ftruncate(self._fd, 0)

    def end_killed_build(self) -> str | None:
        """Kill the tools of a killed builder; returns the folder that they were building, or None."""
        target = _parse(os.pread(self._fd, 4096, 0)).get("target")
        if not isinstance(target, str):
            return None
        kill_build(target)
        return target


@contextlib.contextmanager
def build_lock(path: Path, *, timeout: float, log: LogSink, cancellation: Cancellation) -> Iterator[BuildLock]:
    """Hold the lock; waits up to ``timeout`` seconds for another builder, and writes that to ``log``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    if not _try(fd):
        fd = _wait(fd, path, timeout, log, cancellation)
    try:
        yield BuildLock(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def idle_build_lock(path: Path) -> Iterator[BuildLock | None]:
    """The lock if it is free, else None."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        yield BuildLock(fd) if _try(fd) else None
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(fd: int, path: Path, timeout: float, log: LogSink, cancellation: Cancellation) -> int:
    """Wait in a thread: flock has no timeout, and polling would delay every wait by up to its interval."""
    waiter = _Waiter(fd)
    waiter.start()
    begun = time.monotonic()
    with cancellation.on_request(waiter.woken.set):
        while True:
            log.write(f"waiting for another builder of this environment ({_owner(path)})\n", stream="system")
            left = begun + timeout - time.monotonic()
            waiter.woken.wait(min(max(left, 0), _NOTICE_SECONDS))
            if waiter.ready.is_set():
                return fd
            # give_up() is False if the lock came at the same moment: the next round then returns it.
            if (left <= 0 or cancellation.message is not None) and waiter.give_up():
                cancellation.check()
                message = f"another builder ({_owner(path)}) was not done within {timeout:g} s: try again later"
                raise EnvironmentBuildError(message)


class _Waiter(threading.Thread):
    def __init__(self, fd: int) -> None:
        super().__init__(name="environment-lock", daemon=True)
        self._fd = fd
        self._abandoned = False
        self._decision = threading.Lock()
        self.ready = threading.Event()
        self.woken = threading.Event()  # ready, or cancelled

    def run(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._decision:
            if self._abandoned:
                os.close(self._fd)
            else:
                self.ready.set()
                self.woken.set()

    def give_up(self) -> bool:
        """Stop waiting unless the lock was just acquired; True if stopped. A lock that comes later is released."""
        with self._decision:
            self._abandoned = not self.ready.is_set()
            return self._abandoned


def _owner(path: Path) -> str:
    with contextlib.suppress(OSError):
        record = _parse(path.read_bytes())
        if "pid" in record:
            return f"process {record['pid']}"
    return "another process"


def _parse(data: bytes) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
