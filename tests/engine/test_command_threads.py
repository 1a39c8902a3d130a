"""Commands for which there are no more threads or processes: they wait, or end as what they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from debug_server.engine.command_threads import CommandThreads
from tests.running import ROOT, eventually

COUNT = 30
PROCESSES = 45


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user without any process")
@pytest.mark.usefixtures("nothing_left")
def test_no_more_threads_and_processes(tmp_path: Path) -> None:
    """An engine that gets no more threads or processes brings every command to an end that is true, and goes on."""
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
    wrong = [
        end for end in told["ended"] if end[1] != "exited" and "Resource" not in end[2] and "process" not in end[2]
    ]
    assert not wrong
    assert "command_thread_not_created" in done.stderr or any(end[1] != "exited" for end in told["ended"])
    assert (told["later"], told["check"]) == ("succeeded", "ok")


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
