"""A child's output into the log, against a bare 64 KiB read and write loop over the same child."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from benchmarks import processes
from benchmarks.command_setup import CommandSetup, open_command_setup
from benchmarks.figures import Fact, Figure, Result, Samples, Size, at_least, at_most, interleaved, timed

_BLOCK = 1 << 16
_MIB = 1 << 20
_ROUNDS = {Size.FULL: 7, Size.QUICK: 3, Size.SMALLEST: 1}
_LARGE = {Size.FULL: 1024 * _MIB, Size.QUICK: 128 * _MIB, Size.SMALLEST: _MIB}
_SMALL = {Size.FULL: 256 * _MIB, Size.QUICK: 32 * _MIB, Size.SMALLEST: _MIB}


def measure(size: Size) -> list[Result]:
    """Speed in large blocks and in small writes, and what it costs in memory."""
    with open_command_setup() as setup:
        setup.argv("true")()  # what a first command loads is no growth
        race = _Race(setup, _ROUNDS[size])
        results = [
            race.run("blocks_of_64k", total=_LARGE[size], write=_BLOCK),
            race.run("writes_of_100", total=_SMALL[size], write=100),
        ]
        keeper = max(map(processes.peak_bytes, processes.keepers()))
    return [
        *results,
        Figure(name="keeper_peak", value=round(keeper / _MIB, 2), unit="MiB", bar=at_most(30)),
        Figure(name="server_growth", value=round(race.growth / _MIB, 2), unit="MiB", bar=at_most(2)),
    ]


class _Race:
    """The supervisor against the bare loop over one child."""

    def __init__(self, setup: CommandSetup, rounds: int) -> None:
        self._place, self._rounds = setup, rounds
        self.growth = 0  # of this process, at most, while the supervisor ran

    def run(self, name: str, *, total: int, write: int) -> Result:
        """The share of the bare loop's speed that ours reaches."""
        argv = _writer(total, write)
        target = self._place.folder / "bare.log"
        ours, bare = interleaved(
            lambda: self._supervised(argv, total), lambda: _bare(argv, target, total), rounds=self._rounds
        )
        facts: dict[str, Fact] = {"ours_mb_s": _speed(total, ours), "bare_mb_s": _speed(total, bare)}
        facts |= ours.facts("ours") | bare.facts("bare")
        return Figure(name=name, value=round(bare.p50 / ours.p50, 4), unit="of bare", bar=at_least(0.85), facts=facts)

    def _supervised(self, argv: list[str], total: int) -> float:
        run = self._place.argv(*argv)
        processes.forget_peak()
        before = processes.resident_bytes(os.getpid())
        began = time.perf_counter()
        result = run()
        seconds = time.perf_counter() - began
        self.growth = max(self.growth, processes.peak_bytes(os.getpid()) - before)
        _check_and_remove(result.log_path, total)
        return seconds


def _writer(total: int, write: int) -> list[str]:
    """A child that writes ``total`` bytes, ``write`` at a time, and does nothing else worth a measurement."""
    return ["dd", "if=/dev/zero", f"ibs={_BLOCK}", f"obs={write}", f"count={total // _BLOCK}", "status=none"]


def _speed(total: int, samples: Samples) -> float:
    return round(total / samples.p50 / 1e6, 1)


def _bare(argv: list[str], target: Path, total: int) -> float:
    seconds = timed(lambda: _copy(argv, target))
    _check_and_remove(target, total)
    return seconds


def _copy(argv: list[str], target: Path) -> None:
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            pipe = child.stdout.fileno()
            while data := os.read(pipe, _BLOCK):
                os.write(file, data)
    finally:
        os.close(file)


def _check_and_remove(path: Path, total: int) -> None:
    """Both must have moved every byte; removed at once, so that its pages are not the next one's to write back."""
    size = path.stat().st_size
    path.unlink()
    if size != total:
        raise OSError(f"{path} has {size} bytes, not {total}")
