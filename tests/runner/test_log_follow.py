"""Followers of a log that another process writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from debug_server.errors import NotFoundError
from debug_server.runner.log_follow import follow as follow_within
from debug_server.runner.log_format import STDOUT, STREAM_NAMES, LogWriter, index_path
from debug_server.runner.log_reader import LogSegment, seal_log

from .log_children import ROOT, start
from .programs.write_log import writes

COUNT = 120

# A writer is a process of its own, which may take its time to begin.
follow = partial(follow_within, appear_within=60.0)


def by_stream(segments: Iterable[LogSegment]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for segment in segments:
        found[segment.stream] = found.get(segment.stream, b"") + segment.data
    return found


def expected(seed: int, count: int = COUNT) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for stream, data in writes(seed, count):
        found[STREAM_NAMES[stream]] = found.get(STREAM_NAMES[stream], b"") + data
    return found


def test_before_while_and_after(tmp_path: Path) -> None:
    """Followers that begin before the log exists, amid the writing and after its end get the same bytes."""
    path = tmp_path / "a.log"
    with ThreadPoolExecutor(3) as pool:
        early = pool.submit(lambda: by_stream(follow(path)))
        with follow(path) as first, start("write_log.py", path, 1, COUNT, 0.002) as child:
            next(first)
            amid = pool.submit(lambda: by_stream(follow(path)))
        late = pool.submit(lambda: by_stream(follow(path)))
        assert early.result() == amid.result() == late.result() == expected(1)
    assert child.returncode == 0


def test_from_any_offset_without_gap_or_repeat(tmp_path: Path) -> None:
    """A follower that begins at an offset while the log grows gets exactly the bytes from there on, in order."""
    path = tmp_path / "a.log"
    whole = b"".join(data for _, data in writes(2, COUNT))
    with start("write_log.py", path, 2, COUNT, 0.001), ThreadPoolExecutor(4) as pool:
        offsets = [0, 1, len(whole) // 2, len(whole) + 10]
        parts = pool.map(lambda offset: b"".join(s.data for s in follow(path, offset)), offsets)
        assert list(parts) == [whole[offset:] for offset in offsets]


def test_fifty_followers(tmp_path: Path) -> None:
    """Fifty followers of one growing log each get all of it."""
    path = tmp_path / "a.log"
    with ThreadPoolExecutor(50) as pool:
        followers = [pool.submit(lambda: by_stream(follow(path))) for _ in range(50)]
        with start("write_log.py", path, 3, COUNT, 0.002):
            wanted = expected(3)
            assert all(follower.result() == wanted for follower in followers)


def test_a_follower_of_another_process_may_be_killed(tmp_path: Path) -> None:
    """A follower that is killed in the middle disturbs neither the writer nor other followers."""
    path = tmp_path / "a.log"
    program = f"from debug_server.runner.log_follow import follow\nfor s in follow({str(path)!r}): print(1, flush=True)"
    with (
        follow(path) as follower,
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        ) as victim,
        start("write_log.py", path, 4, COUNT, 0.005) as child,
    ):
        assert victim.stdout is not None
        victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        assert by_stream(follower) == expected(4)
    assert child.returncode == 0


def test_closing_ends_an_iteration_in_another_thread(tmp_path: Path) -> None:
    """A follower that waits for more, or for the log itself, ends when it is closed elsewhere; twice is harmless."""
    path = tmp_path / "a.log"
    for begun in (False, True):
        if begun:
            writer = LogWriter(path)
            writer.write(STDOUT, b"x")
        follower = follow(path)
        found: list[LogSegment] = []
        waiting = threading.Thread(target=lambda: found.extend(follower))  # noqa: B023 - joined in this turn
        waiting.start()
        follower.close()
        waiting.join(60)
        assert not waiting.is_alive()
        follower.close()
        assert list(follower) == []
    writer.close()


def test_closing_drops_what_was_read_ahead(tmp_path: Path) -> None:
    """After close not even segments that are in memory are given."""
    path = tmp_path / "a.log"
    writer = LogWriter(path)
    writer.write(STDOUT, b"x")
    writer.write(STDOUT, b"y")
    follower = follow(path)
    assert next(follower).data == b"x"
    follower.close()
    assert list(follower) == []
    writer.close()


def test_a_log_that_never_appears(tmp_path: Path) -> None:
    """Waiting for a log has a deadline, and the message names the path."""
    with pytest.raises(NotFoundError, match=r"never\.log within 0\.05 s"):
        list(follow_within(tmp_path / "never.log", appear_within=0.05))


def test_a_log_in_a_directory_that_appears_later(tmp_path: Path) -> None:
    """Neither the log nor its directory need exist when following begins."""
    path = tmp_path / "later" / "a.log"
    with ThreadPoolExecutor(1) as pool:
        follower = pool.submit(lambda: by_stream(follow(path)))
        path.parent.mkdir()
        with start("write_log.py", path, 5, COUNT, 0):
            assert follower.result() == expected(5)


def test_a_killed_writers_followers_end_with_the_seal(tmp_path: Path) -> None:
    """After the writer is killed its follower waits; sealing the log ends it with every byte on the disk."""
    path = tmp_path / "a.log"
    with follow(path) as follower, start("write_log.py", path, 6, 1500, 0.001) as child:
        first = next(follower)
        child.kill()
        child.wait()
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(lambda: list(follower))
            seal_log(path)
            segments = [first, *rest.result(60)]
    assert b"".join(segment.data for segment in segments) == path.read_bytes()
    whole = b"".join(data for _, data in writes(6, 1500))
    assert whole.startswith(path.read_bytes())


def test_streams_are_right_although_the_index_comes_after_the_log(tmp_path: Path) -> None:
    """A follower that opens the log before its index exists does not take the first bytes for stdout."""
    path = tmp_path / "a.log"
    path.touch()
    with follow(path) as follower, ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: by_stream(follower))
        assert not Path(index_path(path)).exists()
        with start("write_log.py", path, 7, COUNT, 0):
            assert found.result() == expected(7)
