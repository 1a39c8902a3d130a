"""From the death of a supervised worker to the first word of its successor, the wait aside; beside supervisord."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.command_setup import CommandSetup, open_command_setup
from benchmarks.figures import Fact, Figure, Result, Samples, Size, Skipped, at_most, milliseconds
from debug_server.workers.backoff import JITTER
from debug_server.workers.spec import StdoutReadiness, WorkerSpec, WorkerTiming
from debug_server.workers.workers import Workers

_ROUNDS = {Size.FULL: 200, Size.QUICK: 20, Size.SMALLEST: 2}
_WAIT = 0.01  # between death and start; taken off the figure
_SECONDS = 30.0
# It says who it is as its first act, and then does nothing for ever.
_SCRIPT = 'echo up; echo $$ > "$1"; exec sleep 100000'
_SUPERVISORD = """
[supervisord]
nodaemon = true
logfile = /dev/null
logfile_maxbytes = 0
pidfile = {folder}/supervisord.pid
childlogdir = {folder}

[program:worker]
command = /bin/sh {script} {pipe}
autorestart = true
startsecs = 0
startretries = 1000000
stdout_logfile = NONE
stderr_logfile = NONE
"""


class StartNotices:
    """A pipe on which each new worker writes its pid."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notices"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def next(self) -> tuple[int, float]:
        """The pid, and when it was heard; for a loop's sake it is heard in a thread."""
        if not select.select([self._fd], [], [], _SECONDS)[0]:
            raise TimeoutError(f"no worker was started within {_SECONDS:g} s")
        now = time.monotonic()
        return int(os.read(self._fd, 64).split()[-1]), now

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)


def measure(size: Size) -> list[Result]:
    """Ours, and supervisord's in the same minute."""
    with open_command_setup() as setup:
        notices = StartNotices(setup.folder)
        signs, starts = asyncio.run(_ours(setup, notices, _ROUNDS[size]))
        notices.close()
    facts = {**signs.facts("not_ready"), **starts.facts("ours")}
    return [
        Figure(name="death_to_not_ready_p50", value=milliseconds(signs.p50), unit="ms", bar=at_most(100), facts=facts),
        Figure(name="death_to_successor_p50", value=milliseconds(starts.p50), unit="ms", bar=at_most(20)),
        Figure(name="death_to_successor_p99", value=milliseconds(starts.p99), unit="ms", bar=at_most(20)),
        _peer(_ROUNDS[size]),
    ]


async def _ours(setup: CommandSetup, notices: StartNotices, rounds: int) -> tuple[Samples, Samples]:
    spec = WorkerSpec(
        name="bench",
        argv=["/bin/sh", "-c", _SCRIPT, "worker", str(notices.path)],
        readiness=StdoutReadiness(line="up"),
        cwd=setup.folder,
        timing=WorkerTiming(backoff_initial=_WAIT, backoff_maximum=_WAIT, restart_max=rounds + 10),
    )
    workers = Workers(runner=setup.supervisor, store=setup.store, specs=[spec])
    signs, starts = [], []
    async with workers.running():
        worker = workers.pick("bench")
        pid, _ = await asyncio.to_thread(notices.next)
        for _ in range(rounds + 1):
            await worker.wait_for_ready(_SECONDS)
            heard = asyncio.ensure_future(asyncio.to_thread(notices.next))
            with worker.borrow() as generation:
                began = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                await generation.ending.wait()
                signs.append(time.monotonic() - began)
                await generation.ended
            pid, at = await heard
            starts.append(at - began - _WAIT * (1.0 - JITTER))  # the shortest wait it can have had
    return Samples.of(signs[1:]), Samples.of(starts[1:])


def _peer(rounds: int) -> Result:
    name = "supervisord_death_to_successor_p50"
    try:
        found = version("supervisor")
    except PackageNotFoundError:
        return Skipped(name=name, reason="supervisor is not installed: make setup")
    with open_command_setup() as setup:
        notices = StartNotices(setup.folder)
        with _supervisord(setup.folder, notices.path):
            pid, _ = notices.next()
            took = []
            for _ in range(min(rounds, 20)):
                time.sleep(0.05)
                began = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                pid, at = notices.next()
                took.append(at - began)
        notices.close()
    samples = Samples.of(took)
    facts: dict[str, Fact] = {"version": found, **samples.facts("supervisord")}
    return Figure(name=name, value=milliseconds(samples.p50), unit="ms", facts=facts)


@contextmanager
def _supervisord(folder: Path, pipe: Path) -> Iterator[None]:
    script, config = folder / "worker.sh", folder / "supervisord.conf"
    script.write_text(_SCRIPT + "\n")
    config.write_text(_SUPERVISORD.format(folder=folder, script=script, pipe=pipe))
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        process.kill()
        process.wait()
