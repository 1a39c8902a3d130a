"""Commands for which there are no more threads or processes: they wait, or end as what they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from debug_server.engine import command_threads
from debug_server.engine.command_threads import CommandThreads
from tests.running import ROOT, eventually

COUNT = 30
PROCESSES = 45


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user without any process")
@pytest.mark.usefixtures("nothing_left")
def test_no_more_threads_and_processes(tmp_path: Path) -> None:
    """An engine that gets no more threads or processes runs every command once it does, and goes on."""
    arguments = [str(tmp_path), str(200_000 + os.getpid()), str(PROCESSES), str(COUNT)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.exhausted_program", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["ended"]) == COUNT
    assert [end for end in told["ended"] if end[1] != "exited"] == []
    assert (told["refused"], told["later"], told["check"]) == (True, "succeeded", "ok")


def test_fork_support_is_off() -> None:
    """gRPC's fork support, which ends a process that gets no thread, is off before grpc is imported."""
    assert grpc.__name__ and os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "0"


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No thread can be started until the result is called."""
    start = threading.Thread.start

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return lambda: monkeypatch.setattr(threading.Thread, "start", start)


def test_commands_wait_for_threads(no_threads: Callable[[], None]) -> None:
    """What gets no thread waits, and begins in its order once there are some."""
    done: list[int] = []
    threads = CommandThreads()
    for number in range(3):
        threads.start(lambda number=number: done.append(number))  # type: ignore[misc]
    threads.retry()
    assert threads.waiting and not done
    no_threads()
    threads.retry()
    eventually(lambda: sorted(done) == [0, 1, 2], what="all of them")
    assert not threads.waiting


@pytest.fixture
def lasting() -> Iterator[CommandThreads]:
    """Threads that wait for work until they are told to end, however long the test stalls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_threads, "_IDLE_SECONDS", 1000.0)
        threads = CommandThreads()
        yield threads
        threads.end_idle()


def test_a_thread_serves_one_command_after_another(lasting: CommandThreads) -> None:
    """A thread without work takes the next; while it has work, another one is started."""
    threads, names, gate = lasting, list[int](), threading.Event()

    def work() -> None:
        names.append(threading.get_ident())

    threads.start(work)
    eventually(lambda: threads._idle == 1, what="an idle thread")
    threads.start(work)
    eventually(lambda: threads._idle == 1 and len(names) == 2, what="the next command")
    assert names[0] == names[1]

    def hold() -> None:
        gate.wait(100)

    threads.start(hold)
    threads.start(work)
    eventually(lambda: len(names) == 3, what="a command beside a running one")
    assert names[2] != names[0]
    gate.set()
    eventually(lambda: threads._idle == 2, what="two idle threads")


def test_idle_threads_end_on_request(lasting: CommandThreads) -> None:
    """They count against the limit of processes; what comes afterwards gets a new thread."""
    threads, workers = lasting, list[threading.Thread]()

    def work() -> None:
        workers.append(threading.current_thread())

    threads.start(work)
    eventually(lambda: threads._idle == 1, what="an idle thread")
    threads.end_idle()
    eventually(lambda: not workers[0].is_alive(), what="its end")
    threads.start(work)
    eventually(lambda: len(workers) == 2, what="the next command")
    assert workers[1] is not workers[0]
    eventually(lambda: threads._idle == 1, what="another idle thread")


def test_idle_threads_end_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no work is lost with them."""
    monkeypatch.setattr(command_threads, "_IDLE_SECONDS", 0.001)
    threads, done = CommandThreads(), list[int]()
    for number in range(300):
        threads.start(lambda number=number: done.append(number))  # type: ignore[misc]
        if number % 3 == 0:
            eventually(lambda number=number: len(done) > number, what="the command")  # type: ignore[misc]
    eventually(lambda: sorted(done) == list(range(300)), what="all commands")
    eventually(lambda: threads._idle == 0, what="the end of the threads")
