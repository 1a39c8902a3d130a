"""The service's thread pools: if no further thread can be created, work waits for the existing ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import Empty
from typing import ParamSpec, TypeVar

from debug_server.errors import ResourcesExhaustedError

_RENEW_SECONDS = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class Threads(Executor):
    """A pool of threads; those that have nothing to do can be ended."""

    def __init__(self, max_workers: int, name: str) -> None:
        self._max_workers, self._name = max_workers, name
        self._lock = threading.Lock()
        self._pool = _Pool(max_workers, name)
        self._renewed = -_RENEW_SECONDS

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call; ResourcesExhaustedError if the pool has no thread and none can be created."""
        with self._lock:
            return self._pool.submit(function, *args, **kwargs)

    def end_idle(self) -> None:
        """End the threads that wait for work: each one counts against the limit of processes."""
        with self._lock:
            if (now := time.monotonic()) < self._renewed + _RENEW_SECONDS:
                return
            self._renewed = now
            pool, self._pool = self._pool, _Pool(self._max_workers, self._name)
        pool.shutdown(wait=False)  # what runs or is queued there is still done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work."""
        with self._lock:
            pool = self._pool
        pool.shutdown(wait, cancel_futures=cancel_futures)


class _Pool(ThreadPoolExecutor):
    """A pool that removes work from its queue if it reports the work as refused.

    The library queues work first and then starts a thread: if that fails, the caller gets an error, but the work is
    still done as soon as there is a thread.
    """

    def __init__(self, max_workers: int, name: str) -> None:
        super().__init__(max_workers, thread_name_prefix=name)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            exhausted = ResourcesExhaustedError.of(error)
            if exhausted is None:
                raise
            if self._threads:
                return  # an existing thread does the work
            while True:  # without any thread the queue can only hold this one item
                try:
                    self._work_queue.get_nowait()
                except Empty:
                    raise exhausted from error


def or_exhausted(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function; ResourcesExhaustedError if a thread or process that it needs cannot be created."""
    try:
        return function(*args, **kwargs)
    except (RuntimeError, BlockingIOError) as error:
        exhausted = ResourcesExhaustedError.of(error)
        if exhausted is None:
            raise
        raise exhausted from error
