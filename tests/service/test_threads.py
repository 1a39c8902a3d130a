"""The service's threads, where no more can be started."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from typing import Any

import pytest

from debug_server.errors import ResourcesExhaustedError
from debug_server.service.blocking_calls import BlockingCalls
from debug_server.service.threads import Threads
from tests.running import eventually


def test_what_was_refused_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for which there is no thread is refused and forgotten."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[Any] = []
    with Threads(2, "test") as pool:
        with monkeypatch.context() as patched, pytest.raises(ResourcesExhaustedError):
            patched.setattr(threading.Thread, "start", refuse)
            pool.submit(done.append, 1)
        pool.submit(done.append, 2).result(100)
    assert done == [2]


def test_threads_without_work_are_ended() -> None:
    """What runs is finished, what waits is let go, and later work is done by new threads."""
    begun, go = threading.Event(), threading.Event()

    def work() -> threading.Thread:
        begun.set()
        assert go.wait(100)
        return threading.current_thread()

    with Threads(2, "test") as pool:
        for _ in pool.map(time.sleep, [0.01, 0.01]):
            pass
        running = pool.submit(work)
        assert begun.wait(100)
        pool.end_idle()
        eventually(lambda: len(_threads_named("test")) == 1, what="the end of the idle thread")
        (left,) = _threads_named("test")
        assert pool.submit(pow, 2, 3).result(100) == 8
        go.set()
        assert running.result(100) is left


def _threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}_")]


def test_processes_held_ahead_are_given_up() -> None:
    """A call that gets no process is refused to be retried, and then nothing is held that another could have."""
    let_go: list[bool] = []

    def fork() -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    blocking = BlockingCalls(reads_in_event_loop=True, on_exhausted=lambda: let_go.append(True))
    for call in (blocking.call, blocking.call_git, blocking.call_peers):
        with pytest.raises(ResourcesExhaustedError):
            asyncio.run(call(fork))
    assert len(let_go) == 3
    blocking.close()
