"""The service's thread pools: if no further thread can be created, work waits for the existing ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty
from typing import ParamSpec, TypeVar

from debug_server.errors import ResourcesExhaustedError

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
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
