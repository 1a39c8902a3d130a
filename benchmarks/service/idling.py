"""How long a server takes to start, and what it uses while nobody wants anything."""

from __future__ import annotations

import time

from benchmarks import processes
from benchmarks.figures import Figure, Result, Samples, Size, at_most
from benchmarks.service.serving import Server, serving
from debug_server.runner.keeper.tree import descendants

_STARTS = {Size.FULL: 5, Size.QUICK: 3, Size.SMALLEST: 1}
_SECONDS = {Size.FULL: 20.0, Size.QUICK: 5.0, Size.SMALLEST: 0.1}
_SETTLE = 2.0


def measure(size: Size) -> list[Result]:
    """Start-up time of servers after each other, processor time of the last one."""
    starts = []
    for _ in range(_STARTS[size] - 1):
        with serving() as server:
            starts.append(server.started_seconds)
    with serving() as server:
        starts.append(server.started_seconds)
        share = _idle_share(server, _SECONDS[size])
    found = Samples.of(starts)
    return [
        Figure(name="start_up", value=found.p50, unit="s", bar=at_most(1), facts=found.facts("start")),
        Figure(name="idle_cpu", value=share * 100, unit="%", bar=at_most(1)),
    ]


def _idle_share(server: Server, seconds: float) -> float:
    """Of one processor, by the server and everything that it started; one command has run."""
    connection = server.connect()
    command = connection.submit(connection.open_session(), "true")
    connection.answer("GET", f"/commands/{command}/wait")
    time.sleep(min(_SETTLE, seconds))
    pids = [server.pid, *descendants(server.pid)]
    before, began = sum(map(processes.cpu_seconds, pids)), time.monotonic()
    time.sleep(seconds)
    used = sum(map(processes.cpu_seconds, pids)) - before
    connection.close()
    return used / (time.monotonic() - began)
