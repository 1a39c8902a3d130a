"""The event loop of the proxy: generators that run until they would block, in one thread.

A hundred lines instead of asyncio, which would cost each command eleven megabytes and does not move bytes within the
kernel. A task is a generator. It tries an operation, and if that would block it yields a deadline after it registered
for what it waits for. A wake-up may be spurious, so every wait is in a loop around the operation.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Generator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Result = TypeVar("Result")
    # Yields the deadline of a wait, or None to let others run first.
    Steps = Generator[float | None, None, Result]

_READ = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITE = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
_EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_SWEEP_SECONDS = 0.5  # how exact deadlines are
NEVER = float("inf")


class TimedOut(Exception):
    """The deadline of a wait has passed."""


class Task:
    """One generator, and whether it waits."""

    __slots__ = ("deadline", "done", "parked", "steps")

    def __init__(self, steps: Steps[None]) -> None:
        self.steps = steps
        self.deadline = NEVER
        self.parked = False
        self.done = False


class Loop:
    """Runs tasks. Only ``wake_soon`` may be called from another thread."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._poll = select.epoll()
        self._readers: dict[int, Task] = {}
        self._writers: dict[int, Task] = {}
        self._ready: deque[Task] = deque()
        self._tasks: set[Task] = set()
        self._current: Task | None = None
        self._woken: deque[Task] = deque()  # by other threads
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._bell, select.EPOLLIN)
        self._swept = time.monotonic()
        self._timed = False  # some task may wait with a deadline

    # --- for tasks

    def start(self, steps: Steps[None]) -> Task:
        """Run a generator as a task."""
        task = Task(steps)
        self._tasks.add(task)
        self._ready.append(task)
        return task

    def cancel(self, task: Task) -> None:
        """End a task that does not run now, wherever it waits."""
        task.steps.close()
        self._end(task)

    def current(self) -> Task:
        """The task that runs now."""
        assert self._current is not None
        return self._current

    def watch(self, each: socket.socket) -> None:
        """Make a socket non-blocking and watch it; ``close_socket`` ends that."""
        each.setblocking(False)
        self._poll.register(each.fileno(), _EDGES)

    def close_socket(self, each: socket.socket) -> None:
        """Close a socket; tasks that wait for it find it closed."""
        number = each.fileno()
        each.close()
        for waiting in (self._readers, self._writers):
            if (task := waiting.pop(number, None)) is not None:
                self.wake(task)

    def readable(self, each: socket.socket, deadline: float) -> Steps[None]:
        """Wait until there may be something to read."""
        self._readers[each.fileno()] = self.current()
        yield deadline

    def writable(self, each: socket.socket, deadline: float) -> Steps[None]:
        """Wait until there may be room to write."""
        self._writers[each.fileno()] = self.current()
        yield deadline

    def wake(self, task: Task) -> None:
        """Let a task that waits run again."""
        if task.parked:
            task.parked = False
            self._ready.append(task)

    def wake_soon(self, task: Task) -> None:
        """``wake``, from another thread."""
        self._woken.append(task)
        os.eventfd_write(self._bell, 1)

    # --- for the process

    def run(self, control: int) -> None:
        """Run until ``control`` becomes readable, which is when its other end is closed; then end all tasks."""
        self._poll.register(control, select.EPOLLIN)
        try:
            while control not in self._wait():
                for _ in range(len(self._ready)):
                    self._step(self._ready.popleft())
                self._sweep()
        finally:
            for task in list(self._tasks):
                task.steps.close()

    def close(self) -> None:
        """After ``run``, and once no other thread calls ``wake_soon``."""
        self._poll.close()
        os.close(self._bell)

    def _wait(self) -> list[int]:
        seconds = 0.0 if self._ready else _SWEEP_SECONDS if self._timed else None
        found = self._poll.poll(seconds)
        for number, events in found:
            if number == self._bell:
                os.eventfd_read(self._bell)
                while self._woken:
                    self.wake(self._woken.popleft())
                continue
            if events & _READ and (task := self._readers.pop(number, None)) is not None:
                self.wake(task)
            if events & _WRITE and (task := self._writers.pop(number, None)) is not None:
                self.wake(task)
        return [number for number, _ in found]

    def _step(self, task: Task, error: Exception | None = None) -> None:
        if task.done:
            return
        self._current = task
        try:
            deadline = task.steps.send(None) if error is None else task.steps.throw(error)
        except StopIteration:
            self._end(task)
        except Exception as failure:  # noqa: BLE001  (a defect, or memory that runs out, costs one connection)
            self._end(task)
            self._on_failure(failure)
        else:
            if deadline is None:
                self._ready.append(task)
            else:
                task.parked, task.deadline = True, deadline
                self._timed = self._timed or deadline != NEVER
        finally:
            self._current = None

    def _end(self, task: Task) -> None:
        task.done = True
        self._tasks.discard(task)

    def _sweep(self) -> None:
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        for task in [task for task in self._tasks if task.parked and task.deadline <= now]:
            task.parked = False
            self._step(task, TimedOut())
        self._timed = any(task.parked and task.deadline != NEVER for task in self._tasks)


def sleep(seconds: float) -> Steps[None]:
    """Wait, as exactly as the loop sweeps."""
    try:
        yield time.monotonic() + seconds
    except TimedOut:
        return
