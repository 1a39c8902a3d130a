"""Ctrl-C at whatever moment: streams that a command line reads are closed, and it is never lost."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from debug_server.surfaces.cli.driving import drive
from tests.running import ROOT

MOMENTS = 100  # more than ``Runner.run`` has lines


def test_every_item_comes_and_then_the_stream_is_closed() -> None:
    """All items in order; a reader that leaves early closes the stream as well."""
    told: list[str] = []
    with asyncio.Runner() as runner:
        assert list(drive(runner, numbers(told, 3))) == [0, 1, 2]
        assert told == ["closed"]
        for number in drive(runner, numbers(told, 10)):
            if number == 1:
                break
        assert told == ["closed", "closed"]


# Before it has a task, a coroutine that nobody will await is all that there is.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_an_interrupt_at_any_line_closes_the_stream() -> None:
    """Whichever line of ``Runner.run`` it comes at, before its handler is there or after, it arrives as itself and
    leaves no task and no open stream."""
    for moment in range(MOMENTS):
        told: list[str] = []
        with asyncio.Runner() as runner:
            items = drive(runner, numbers(told, 2))
            assert next(items) == 0
            interrupted = interrupt(items, moment)
            items.close()  # type: ignore[attr-defined]
            assert told == ["closed"], moment
            assert asyncio.all_tasks(runner.get_loop()) == set(), moment
        if not interrupted:
            return
    raise AssertionError("the lines did not end")


# What an import does when its lock is not needed any more, and what Python does with an exception there.
DROPPED = """
import signal, sys
def trace(frame, event, _):
    if frame.f_code.co_name == "cb" and frame.f_code.co_filename == "<frozen importlib._bootstrap>":
        sys.settrace(None)
        signal.raise_signal(signal.SIGINT)
from debug_server.__main__ import main
sys.argv = ["debug-server", "run", "--", "sleep", "600"]
sys.settrace(trace)
main()
"""


def test_an_interrupt_that_python_drops_comes_again(tmp_path: Path, nothing_left: None) -> None:
    """One that comes in a callback of an import, where its exception has nowhere to go, ends the program as well."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], cwd=tmp_path, env=environ, capture_output=True, timeout=200, check=False
    )
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert b"Exception ignored" not in done.stderr


async def numbers(told: list[str], count: int) -> AsyncGenerator[int, None]:
    """Slow enough to be waited for."""
    try:
        for number in range(count):
            await asyncio.sleep(0.001)
            yield number
    finally:
        told.append("closed")


def interrupt(items: Iterator[int], moment: int) -> bool:
    """Ask for the next item and raise at a line of ``Runner.run``; whether it has as many."""
    lines = itertools.count()
    reached = False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal reached
        if frame.f_code is not asyncio.Runner.run.__code__:
            return None
        if event == "line" and next(lines) == moment:
            reached = True
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        next(items)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    assert not reached, "the interrupt was swallowed"
    return False


@pytest.fixture(autouse=True)
def quiet_tasks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio says nothing of a task that nobody looked at."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.name == "asyncio"] == []
