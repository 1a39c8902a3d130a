"""Many followers of one command: how late they see what it says, and what they cost while it is silent."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass

from websockets.asyncio.client import ClientConnection, connect

from benchmarks import processes
from benchmarks.figures import Fact, Figure, Result, Samples, Size, at_least, at_most, milliseconds
from benchmarks.service.serving import Server

_MIB = 1 << 20
_CHUNK = 4000
# The clock is the machine's, the same in every process. Each line begins with when it was written.
_WRITER = f"""
import os, sys, time
deadline, pause = time.monotonic(), {_CHUNK} / float(sys.argv[2])
input()
for number in range(int(sys.argv[1])):
    deadline = max(deadline + pause, time.monotonic() - 1)
    time.sleep(max(0.0, deadline - time.monotonic()))
    stamp = b"%020d" % time.monotonic_ns()
    os.write(1, stamp + b"x" * ({_CHUNK} - 21) + b"\\n")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    watchers: int
    total: float  # bytes per second, to all of them
    chunks: int
    idle: int


_AMOUNTS = {
    Size.FULL: _Amounts(watchers=100, total=20e6, chunks=500, idle=2000),
    Size.QUICK: _Amounts(watchers=100, total=20e6, chunks=100, idle=500),
    Size.SMALLEST: _Amounts(watchers=3, total=1e6, chunks=3, idle=5),
}


def measure(server: Server, size: Size) -> list[Result]:
    """The lag of many, and the memory of very many."""
    amounts = _AMOUNTS[size]
    return [*asyncio.run(_lag(server, amounts)), asyncio.run(_idle(server, amounts))]


def follow(server: Server, command: int) -> connect:
    """A follower of a command's log, over a WebSocket."""
    return connect(
        f"ws://127.0.0.1:{server.port}/commands/{command}/log",
        additional_headers={"Authorization": f"Bearer {server.token}"},
        compression=None,
        max_size=None,
        ping_interval=None,
        open_timeout=60,
    )


async def _lag(server: Server, amounts: _Amounts) -> list[Result]:
    connection = server.connect()
    session = connection.open_session()
    argv = [sys.executable, "-I", "-S", "-c", _WRITER, str(amounts.chunks), str(amounts.total / amounts.watchers)]
    submitted = connection.ask("POST", f"/sessions/{session}/commands", {"argv": argv, "stdin": True})
    watchers = [await follow(server, submitted["id"]) for _ in range(amounts.watchers)]
    watching = [asyncio.create_task(_lags(watcher)) for watcher in watchers]
    began = time.perf_counter()
    await asyncio.to_thread(_say_go, server, submitted["id"])
    found = await asyncio.gather(*watching)
    seconds = time.perf_counter() - began
    connection.close()
    lags = Samples.of([lag for values, _ in found for lag in values])
    received = sum(size for _, size in found)
    facts: dict[str, Fact] = {"watchers": amounts.watchers, "messages": len(lags.values)}
    return [
        Figure(
            name="followers_lag_p99",
            value=milliseconds(lags.p99),
            unit="ms",
            bar=at_most(100),
            facts=facts | lags.facts("lag"),
        ),
        Figure(
            name="followers_rate", value=received / seconds / 1e6, unit="MB/s", bar=at_least(0.9 * amounts.total / 1e6)
        ),
    ]


def _say_go(server: Server, command: int) -> None:
    connection = server.connect()
    while connection.ask("GET", f"/commands/{command}")["status"] == "pending":
        time.sleep(0.001)
    connection.ask("POST", f"/commands/{command}/stdin", {"write_id": "go", "data": "\n"})
    connection.close()


async def _lags(watcher: ClientConnection) -> tuple[list[float], int]:
    """How old each line was when it was here whole, and how many bytes came in all."""
    lags, size, rest = [], 0, ""
    async for message in watcher:
        now = time.monotonic_ns()
        text = json.loads(message)["text"]
        size += len(text)
        *lines, rest = (rest + text).split("\n")
        lags += [(now - int(line[:20])) / 1e9 for line in lines]
    return lags, size


async def _idle(server: Server, amounts: _Amounts) -> Result:
    connection = server.connect()
    command = connection.submit(connection.open_session(), "sleep", "600")
    before = processes.resident_bytes(server.pid)
    watchers = [await follow(server, command) for _ in range(amounts.idle)]
    after = processes.resident_bytes(server.pid)
    await asyncio.gather(*(watcher.close() for watcher in watchers))
    connection.ask("POST", f"/commands/{command}/cancel", {})
    connection.close()
    facts = {"followers": amounts.idle, "before_mib": round(before / _MIB, 1), "after_mib": round(after / _MIB, 1)}
    bar = at_most(150)
    return Figure(name="idle_followers", value=round((after - before) / _MIB, 1), unit="MiB", bar=bar, facts=facts)
