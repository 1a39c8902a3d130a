"""``posix_spawn`` and ``waitpid``: what the kernel and the program itself take."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import timed
from benchmarks.peers.contenders import IN_FLIGHT, TRUE, Contender, writer

_BLOCK = 1 << 16


class SpawnFloor(Contender):
    """In this process."""

    name = "spawn"
    about = "in process; nothing is kept; no isolation"

    def run_one(self) -> float:
        """One child."""
        return timed(_run)

    def run_many(self, count: int) -> float:
        """From threads."""
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            return timed(lambda: list(threads.map(lambda _: _run(), range(count))))

    def run_output(self, total: int) -> float:
        """Read a pipe to its end."""
        return timed(lambda: _read(writer(total), total))


def _run() -> None:
    pid = os.posix_spawnp(TRUE[0], TRUE, os.environ)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError("true did not end well")


def _read(argv: list[str], total: int) -> None:
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    finally:
        os.close(write)
    received = 0
    while data := os.read(read, _BLOCK):
        received += len(data)
    os.close(read)
    os.waitpid(pid, 0)
    if received != total:
        raise OSError(f"the child wrote {received} of {total} bytes")
