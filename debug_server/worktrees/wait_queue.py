"""The queue in front of a full pool: first come, first served, between threads and processes.

Each waiter has a named pipe in one directory; the names sort by arrival. A release writes a byte to the first pipe that
still has a reader, so a dead waiter is skipped and exactly one is woken. Waiters also poll, in case a wake-up is lost.
"""

from __future__ import annotations

import errno
import os
import secrets
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from debug_server.disk import make_private

_RECHECK_SECONDS = 0.5  # also the delay until an expired lease is noticed

T = TypeVar("T")


class WaitQueue:
    """A fair queue kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private(folder)

    def take(
        self, attempt: Callable[[], T | None], *, timeout: float, on_wait: Callable[[int], None] | None = None
    ) -> T | None:
        """When it is our turn, call ``attempt`` until it returns a value; None after ``timeout`` seconds.

        ``on_wait`` is called once if we have to wait, with the number of waiters before us.
        """
        if self._first() is None and (got := attempt()) is not None:
            return got
        with self._waiter() as (name, pipe):
            deadline = time.monotonic() + timeout
            while True:
                if self._first() == name and (got := attempt()) is not None:
                    return got
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if on_wait is not None:
                    on_wait(self._names().index(name))
                    on_wait = None
                _sleep_until_woken(pipe, min(left, _RECHECK_SECONDS))

    def wake(self) -> None:
        """Wake the first waiter: something was released."""
        for name in self._names():
            with suppress(BlockingIOError):  # full of earlier wake-ups
                if self._signal(name):
                    return

    def _first(self) -> str | None:
        return next((name for name in self._names() if self._alive(name)), None)

    def _names(self) -> list[str]:
        return sorted(os.listdir(self._folder))  # noqa: PTH208

    def _alive(self, name: str) -> bool:
        pipe = self._open_writer(name)
        if pipe is None:
            return False
        os.close(pipe)
        return True

    def _signal(self, name: str) -> bool:
        pipe = self._open_writer(name)
        if pipe is None:
            return False
        try:
            os.write(pipe, b"x")
        except BrokenPipeError:  # its reader closed it between the two calls
            return False
        finally:
            os.close(pipe)
        return True

    def _open_writer(self, name: str) -> int | None:
        try:
            return os.open(self._folder / name, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            (self._folder / name).unlink(missing_ok=True)  # its waiter died
            return None

    @contextmanager
    def _waiter(self) -> Iterator[tuple[str, int]]:
        name = f"{time.monotonic_ns():020d}-{secrets.token_hex(4)}"
        path = self._folder / name
        pipe = _make_pipe(path)
        try:
            yield name, pipe
        finally:
            path.unlink(missing_ok=True)
            os.close(pipe)
            self.wake()  # pass on a wake-up that we did not use


def _make_pipe(path: Path) -> int:
    """Create the pipe and open it for reading under a hidden name: without a reader it counts as a dead waiter's."""
    hidden = path.parent.with_name(f"{path.parent.name}.{path.name}")
    os.mkfifo(hidden, 0o600)
    try:
        pipe = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    return pipe


def _sleep_until_woken(pipe: int, seconds: float) -> None:
    poller = select.poll()  # select() cannot watch descriptors beyond 1023
    poller.register(pipe, select.POLLIN)
    if poller.poll(seconds * 1000):
        with suppress(BlockingIOError):
            os.read(pipe, 4096)
