"""From a child's write to a follower, against a bare pipe; and what 200 followers cost the command."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command_setup import CommandSetup, open_command_setup
from benchmarks.figures import Figure, Result, Samples, Size, at_most, interleaved, milliseconds
from debug_server.runner.log_follow import follow
from debug_server.runner.spec import CommandSpec

_BEGIN = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.001)
"""

# The clock is the machine's, the same in every process.
_STAMPS = f"""{_BEGIN}
for _ in range(int(sys.argv[2])):
    time.sleep(0.003)
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""

# A fixed amount of work between lines, so that whatever slows the command down shows in its time.
_LINES = f"""{_BEGIN}
began = time.monotonic()
for _ in range(int(sys.argv[2])):
    sum(range(20_000))
    os.write(1, b"x" * 99 + b"\\n")
os.write(1, b"%d\\n" % ((time.monotonic() - began) * 1e9))
"""

_BURST = f"""{_BEGIN}
began = time.monotonic()
block = (b"x" * 99 + b"\\n") * 655
for _ in range(int(sys.argv[2])):
    os.write(1, block)
os.write(1, b"%d\\n" % ((time.monotonic() - began) * 1e9))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    stamps: int
    followers: int
    lines: int
    blocks: int
    rounds: int


# 200 followers read 200 times what the command writes: 512 blocks are 32 MiB for it and 6.5 GiB for them.
_AMOUNTS = {
    Size.FULL: _Amounts(stamps=400, followers=200, lines=2000, blocks=512, rounds=11),
    Size.QUICK: _Amounts(stamps=100, followers=200, lines=1000, blocks=256, rounds=3),
    Size.SMALLEST: _Amounts(stamps=2, followers=3, lines=2, blocks=2, rounds=1),
}


def measure(size: Size) -> list[Result]:
    """Latency of one follower, cost of many."""
    amounts = _AMOUNTS[size]
    with open_command_setup() as setup:
        return [
            *_latency(setup, amounts),
            _cost(setup, "cost_while_working", [_LINES, str(amounts.lines)], amounts),
            _cost(setup, "cost_at_full_speed", [_BURST, str(amounts.blocks)], amounts),
        ]


def _latency(setup: CommandSetup, amounts: _Amounts) -> list[Result]:
    followed: list[float] = []
    piped: list[float] = []

    def ours() -> float:
        followed.extend(values := _followed(setup, amounts.stamps))
        return sum(values)

    def peer() -> float:
        piped.extend(values := _piped(setup, amounts.stamps))
        return sum(values)

    interleaved(ours, peer, rounds=amounts.rounds, warm_up=0)
    seen, floor = Samples.of(followed), Samples.of(piped)
    facts = seen.facts("ours") | floor.facts("bare_pipe")
    return [
        Figure(name="write_to_follower_p50", value=milliseconds(seen.p50), unit="ms", bar=at_most(0.5), facts=facts),
        Figure(name="write_to_follower_p99", value=milliseconds(seen.p99), unit="ms"),
    ]


_numbers = itertools.count()


@contextmanager
def _start_signal(setup: CommandSetup) -> Iterator[Path]:
    """A file that the child waits for, so that nobody joins late."""
    path = setup.folder / f"go-{next(_numbers)}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _followed(setup: CommandSetup, stamps: int) -> list[float]:
    with _start_signal(setup) as go:
        spec = CommandSpec([sys.executable, "-S", "-c", _STAMPS, str(go), str(stamps)])
        with setup.running(spec) as (logs, _):
            (path,) = logs.values()
            with follow(path) as follower:
                go.touch()
                return [_age(segment.data) for segment in follower]


def _piped(setup: CommandSetup, stamps: int) -> list[float]:
    with _start_signal(setup) as go:
        argv = [sys.executable, "-S", "-c", _STAMPS, str(go), str(stamps)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0) as child:
            assert child.stdout is not None
            go.touch()
            ages = []
            while data := child.stdout.read(1 << 16):
                ages.append(_age(data))
            return ages


def _age(data: bytes) -> float:
    """Of the oldest write in what arrived together."""
    return (time.monotonic_ns() - int(data.split(b"\n", 1)[0])) / 1e9


def _cost(setup: CommandSetup, name: str, program: list[str], amounts: _Amounts) -> Result:
    watched, alone = interleaved(
        lambda: _with_followers(setup, program, amounts.followers),
        lambda: _with_followers(setup, program, 0),
        rounds=amounts.rounds,
    )
    facts = {"followers": amounts.followers} | watched.facts("watched") | alone.facts("alone")
    return Figure(name=name, value=round((watched.p50 / alone.p50 - 1) * 100, 2), unit="%", bar=at_most(5), facts=facts)


def _with_followers(setup: CommandSetup, program: list[str], count: int) -> float:
    """The seconds that the command itself saw."""
    with _start_signal(setup) as go:
        code, amount = program
        spec = CommandSpec([sys.executable, "-S", "-c", code, str(go), amount])
        with setup.running(spec) as (logs, (result,)):
            (path,) = logs.values()
            ready = threading.Barrier(count + 1)
            threads = [threading.Thread(target=_follow_to_the_end, args=(path, ready)) for _ in range(count)]
            for thread in threads:
                thread.start()
            ready.wait()
            go.touch()
            result.result()
            for thread in threads:
                thread.join()
    seconds = int(path.read_bytes().rsplit(b"\n", 2)[-2]) / 1e9
    path.unlink()
    return seconds


def _follow_to_the_end(path: Path, ready: threading.Barrier) -> None:
    with follow(path) as follower:
        ready.wait()
        for _ in follower:
            pass
