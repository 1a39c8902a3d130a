"""Wake-ups: prompt, shared, self-healing, safe over a fork."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from debug_server.runner.log_format import STDOUT, LogWriter
from debug_server.runner.log_reader import LogCursor
from debug_server.runner.log_watch import watch_log

from .log_children import ROOT


def kernel_watches(path: Path) -> int:
    """How many watches this process's inotify instances have on that file."""
    inode, count = f" ino:{path.stat().st_ino:x} ", 0
    for entry in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += sum(inode in line for line in entry.read_text().splitlines() if line.startswith("inotify"))
    return count


def test_a_write_an_end_and_a_removal_wake(tmp_path: Path) -> None:
    """Bytes, the seal and the deletion of a log each wake who watches it, and silence does not."""
    path = tmp_path / "a.log"
    writer = LogWriter(path)
    watch = watch_log(path)
    assert not watch.wait(0.02)
    writer.write(STDOUT, b"x")
    assert watch.wait(60)
    writer.end()
    assert watch.wait(60)
    path.unlink()
    assert watch.wait(60)
    writer.close()
    watch.close()


def test_one_kernel_watch_for_many(tmp_path: Path) -> None:
    """However many watch one log, the kernel watches it once, and no more after the last has closed."""
    path = tmp_path / "a.log"
    path.touch()
    watches = [watch_log(path) for _ in range(20)]
    assert kernel_watches(path) == 1
    for watch in watches[1:]:
        watch.close()
    assert kernel_watches(path) == 1
    watches[0].close()
    assert kernel_watches(path) == 0


def test_a_log_that_appears_wakes(tmp_path: Path) -> None:
    """One may watch a path before the file, or even its directory, exists."""
    for path in (tmp_path / "a.log", tmp_path / "new" / "a.log"):
        watch = watch_log(path)
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert watch.wait(60)
        while watch.wait(0.1):
            pass
        path.write_bytes(b"x")
        assert watch.wait(60)
        watch.close()


def test_closing_wakes_who_waits(tmp_path: Path) -> None:
    """A thread that waits for a change is released by close."""
    watch = watch_log(tmp_path / "a.log")
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(watch.wait(60)))
    waiting.start()
    watch.close()
    waiting.join(60)
    assert woken == [True]


def test_an_event_loop_is_woken(tmp_path: Path) -> None:
    """A callback carries the wake-up into asyncio, and one that raises harms nobody else."""
    path = tmp_path / "a.log"
    writer = LogWriter(path)

    async def follow_in_loop() -> bytes:
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        watch, cursor, data = watch_log(path), LogCursor(path), b""
        watch.set_callback(lambda: loop.call_soon_threadsafe(changed.set))
        loop.call_later(0.01, writer.write, STDOUT, b"live")
        loop.call_later(0.02, writer.end)
        while True:
            changed.clear()
            while segments := cursor.read():
                data += b"".join(segment.data for segment in segments)
            if cursor.ended:
                break
            await asyncio.wait_for(changed.wait(), 60)
        watch.close()
        cursor.close()
        return data

    faulty = watch_log(path)
    faulty.set_callback(lambda: 1 // 0)
    assert asyncio.run(follow_in_loop()) == b"live"
    faulty.close()
    writer.close()


def test_a_crowd_is_woken_less_often(tmp_path: Path) -> None:
    """Two hundred watchers of a log that grows without pause are woken in rounds 0.1 s apart, and at its end."""
    path = tmp_path / "a.log"
    writer = LogWriter(path)
    watches = [watch_log(path) for _ in range(200)]
    rounds: list[float] = []
    watches[0].set_callback(lambda: rounds.append(time.monotonic()))
    stop_at = time.monotonic() + 0.5
    while time.monotonic() < stop_at:
        writer.write(STDOUT, b"x")
    for watch in watches:
        watch.wait(0)
    writer.end()
    assert all(watch.wait(60) for watch in watches)
    assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(rounds))
    for watch in watches:
        watch.close()
    writer.close()


def test_a_crowd_of_many_logs_is_woken_no_more_often(tmp_path: Path) -> None:
    """However the same crowd is spread over logs that grow, all of it together is woken as often as for one log."""
    writers = [LogWriter(tmp_path / f"{number}.log") for number in range(10)]
    watches = [watch_log(tmp_path / f"{number}.log") for number in range(10) for _ in range(40)]
    woken: list[None] = []
    for watch in watches:
        watch.set_callback(lambda: woken.append(None))
    began = time.monotonic()
    # For longer where the thread that wakes gets no processor; it must, within a minute.
    while (taken := time.monotonic() - began) < 1 or (len(woken) <= len(watches) and taken < 60):
        for writer in writers:
            writer.write(STDOUT, b"x")
    taken, count = time.monotonic() - began, len(woken)
    for watch in watches:
        watch.close()
    for writer in writers:
        writer.close()
    assert len(watches) < count <= 2 * len(watches) + taken / 0.0005


FORKED = """
import os, sys
from debug_server.runner.log_format import LogWriter, STDOUT
from debug_server.runner.log_follow import follow
from debug_server.runner.log_watch import watch_log
path = sys.argv[1]
writer = LogWriter(path)
inherited = watch_log(path)
follower = follow(path)
pid = os.fork()
if pid == 0:
    data = b"".join(segment.data for segment in follower)
    fresh = b"".join(segment.data for segment in follow(path))
    inherited.wait(0.01)
    inherited.close()
    os._exit(0 if data == fresh == b"after the fork" else 1)
writer.write(STDOUT, b"after ")
writer.write(STDOUT, b"the fork")
writer.end()
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert b"".join(segment.data for segment in follower) == b"after the fork"
sys.exit(status)
"""

NO_DESCRIPTORS = """
import os, resource, sys, threading
from debug_server.runner.log_format import LogWriter, STDOUT
from debug_server.runner.log_follow import follow
from debug_server.runner.log_reader import LogReader
path = sys.argv[1]
writer = LogWriter(path)
held = LogReader(path)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
follower = follow(path)
threading.Timer(0.1, lambda: (writer.write(STDOUT, b"polled"), writer.end())).start()
assert b"".join(segment.data for segment in follower) == b"polled"
for descriptor in taken:
    os.close(descriptor)
"""


@pytest.mark.parametrize("program", [FORKED, NO_DESCRIPTORS], ids=["forked", "no descriptors"])
def test_in_a_process_of_its_own(tmp_path: Path, program: str) -> None:
    """Following works on both sides of a fork; and without a descriptor left for inotify, by polling with a warning."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.log")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("log_watch_polling" in done.stderr) == (program is NO_DESCRIPTORS)
