"""The line in front of a full pool: in order, bounded, and not held up by the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from debug_server.worktrees.wait_queue import WaitQueue
from tests.running import eventually


def test_first_come_first_served(tmp_path: Path) -> None:
    """Ten waiters get what is freed in the order in which they came."""
    line, free, served = WaitQueue(tmp_path / "line"), [0], []
    guard = threading.Lock()

    def attempt(number: int) -> int | None:
        with guard:
            if not free[0]:
                return None
            free[0] -= 1
            served.append(number)
            return number + 1

    threads = []
    for number in range(10):
        thread = threading.Thread(
            target=line.take, args=(lambda number=number: attempt(number),), kwargs={"timeout": 200}
        )
        thread.start()
        threads.append(thread)
        eventually(lambda number=number: len(os.listdir(tmp_path / "line")) > number)  # type: ignore[misc]
    for _ in range(10):
        with guard:
            free[0] += 1
        line.wake()
    for thread in threads:
        thread.join()
    assert served == list(range(10))


def test_newcomers_do_not_overtake(tmp_path: Path) -> None:
    """While somebody waits, a newcomer does not even try."""
    line, tried, leave = WaitQueue(tmp_path / "line"), [], threading.Event()
    first = threading.Thread(target=line.take, args=(lambda: leave.is_set() or None,), kwargs={"timeout": 200})
    first.start()
    eventually(lambda: os.listdir(tmp_path / "line"))
    assert line.take(lambda: tried.append(1), timeout=0) is None
    assert tried == []
    leave.set()
    line.wake()
    first.join()
    assert line.take(lambda: 7, timeout=0) == 7


def test_dead_waiter_is_skipped(tmp_path: Path) -> None:
    """A waiter that was killed does not hold up the line."""
    program = (
        "import sys, pathlib; from debug_server.worktrees.wait_queue import WaitQueue\n"
        "line = WaitQueue(pathlib.Path(sys.argv[1]))\n"
        "line.take(lambda: print('waiting', flush=True), timeout=200)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "line")]
    child = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    eventually(lambda: os.listdir(tmp_path / "line"))
    child.kill()
    child.communicate()
    assert WaitQueue(tmp_path / "line").take(lambda: "mine", timeout=100) == "mine"
    assert os.listdir(tmp_path / "line") == []
