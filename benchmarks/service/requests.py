"""Requests on kept connections: reading a command against the smallest application, submitting one to its exit."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from benchmarks.figures import Figure, Result, Samples, Size, at_least, at_most, interleaved, milliseconds, timed
from benchmarks.service.load import rate_of
from benchmarks.service.serving import Connection, Server

_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    seconds: float  # of each round of reading
    rounds: int
    submits: int
    together: int


_AMOUNTS = {
    Size.FULL: _Amounts(seconds=2.0, rounds=5, submits=1000, together=4000),
    Size.QUICK: _Amounts(seconds=0.5, rounds=3, submits=200, together=800),
    Size.SMALLEST: _Amounts(seconds=0.05, rounds=1, submits=2, together=16),
}


def measure(server: Server, bare: Server, size: Size) -> list[Result]:
    """Rates and times of requests."""
    amounts = _AMOUNTS[size]
    with closing(server.connect()) as connection:
        command = _run(connection, connection.open_session())
    reading = _reading(server, bare, command, amounts)
    with closing(server.connect()) as connection:
        submitting = _submitting(connection, connection.open_session(), amounts)
    return [reading, *submitting, _eight(server, amounts)]


def _reading(server: Server, bare: Server, command: int, amounts: _Amounts) -> Result:
    path = f"/commands/{command}"
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(amounts.rounds):
        ours.append(rate_of(server, path, amounts.seconds))
        theirs.append(rate_of(bare, path, amounts.seconds))
    mine, peer = Samples.of(ours).p50, Samples.of(theirs).p50
    facts = {"ours_per_second": round(mine), "bare_per_second": round(peer)}
    return Figure(name="get_command_ratio", value=mine / peer, unit="x", bar=at_least(0.4), facts=facts)


def _run(connection: Connection, session: int) -> int:
    """Submit ``true`` and follow it to its end; over two requests, the second of which ends with the command."""
    command = connection.submit(session, "true")
    said = connection.answer("GET", f"/commands/{command}/log/events")
    if b'"exit_code":0' not in said:
        raise OSError(f"command {command} did not end well: {said[-200:]!r}")
    return command


def _submitting(connection: Connection, session: int, amounts: _Amounts) -> list[Result]:
    ours, peer = interleaved(
        lambda: timed(lambda: _run(connection, session)),
        lambda: timed(lambda: subprocess.run(["true"], check=True)),
        rounds=amounts.submits,
        warm_up=max(1, amounts.submits // 20),
    )
    facts = ours.facts("ours") | peer.facts("subprocess")
    return [
        Figure(name="submit_to_exit_p50", value=milliseconds(ours.p50), unit="ms", bar=at_most(4.5), facts=facts),
        Figure(name="submit_to_exit_p99", value=milliseconds(ours.p99), unit="ms"),
    ]


def _eight(server: Server, amounts: _Amounts) -> Result:
    """Eight callers, each with a session and a connection of its own."""
    each = amounts.together // _IN_FLIGHT
    connections = [server.connect() for _ in range(_IN_FLIGHT)]
    sessions = [connection.open_session() for connection in connections]

    def work(place: int) -> None:
        for _ in range(each):
            _run(connections[place], sessions[place])

    with ThreadPoolExecutor(_IN_FLIGHT) as threads:
        list(threads.map(_run, connections, sessions))
        began = time.perf_counter()
        list(threads.map(work, range(_IN_FLIGHT)))
        seconds = time.perf_counter() - began
    for connection in connections:
        connection.close()
    rate = each * _IN_FLIGHT / seconds
    return Figure(
        name="eight_in_flight", value=rate, unit="1/s", bar=at_least(500), facts={"commands": each * _IN_FLIGHT}
    )
