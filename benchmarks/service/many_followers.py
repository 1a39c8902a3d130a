"""What a thousand followers of growing logs cost everybody else: requests beside them, and without them.

The followers' client is a process of its own that only empties its sockets, at the lowest priority: what is measured is
the server. Both shapes send every byte of a log to each of its followers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from benchmarks import processes
from benchmarks.figures import Fact, Figure, Result, Samples, Size, at_most, milliseconds, timed
from benchmarks.service.serving import Connection, Server

_PAUSE_SECONDS = 0.02  # between two rounds of requests
_SETTLE_SECONDS = 1.0  # after the logs begin to grow
_READS = ("healthz", "whoami", "get_command")

_WRITER = """
import os, sys, time
input()
pause, due = 1000 / float(sys.argv[1]), time.monotonic()
while True:
    os.write(1, b"x" * 999 + b"\\n")
    due = max(due + pause, time.monotonic() - 1)
    time.sleep(max(0.0, due - time.monotonic()))
"""

# Connects, says "ready", and then only receives until its stdin is closed: then it says how much came.
_FOLLOWERS = """
import json, os, re, selectors, socket, sys
port, token, commands, count = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
HEAD = "\\r\\n".join(["GET /commands/%d/log HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "Authorization: Bearer %s", "", ""])
os.nice(19)
selector, sockets, buffer, received, tails = selectors.DefaultSelector(), [], bytearray(1 << 18), 0, {}
for number in range(count):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall((HEAD % (commands[number % len(commands)], token)).encode())
    answer = connection.recv(4096)
    assert b" 101 " in answer, answer
    selector.register(connection, selectors.EVENT_READ, number)
    sockets.append(connection)
selector.register(0, selectors.EVENT_READ, -1)
print("ready", flush=True)
leaving = False
while not leaving:
    for key, _ in selector.select():
        if key.data < 0:
            leaving = True
            continue
        size = key.fileobj.recv_into(buffer)
        if not size:
            selector.unregister(key.fileobj)
        received += size
        tails[key.data] = bytes(buffer[max(0, size - 200):size])
places = {}
for number, tail in tails.items():
    found = re.findall(rb'"next_offset":(\\d+),', tail)
    if found:
        places.setdefault(str(commands[number % len(commands)]), []).append(int(found[-1]))
print(json.dumps({"received": received, "places": places}), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerLoad:
    """How many follow how much."""

    followers: int
    logs: int
    total: float  # bytes a second that all logs together grow by
    seconds: float


_LOADS = {
    Size.FULL: [
        FollowerLoad(followers=1000, logs=5, total=1e6, seconds=15.0),
        FollowerLoad(followers=1000, logs=1, total=1e6, seconds=15.0),
    ],
    Size.QUICK: [FollowerLoad(followers=1000, logs=5, total=1e6, seconds=5.0)],
    Size.SMALLEST: [FollowerLoad(followers=3, logs=2, total=1e4, seconds=0.2)],
}


def measure(server: Server, size: Size) -> list[Result]:
    """How long requests take beside each load."""
    return [figure for load in _LOADS[size] for figure in measure_load(server, load)]


def measure_load(server: Server, load: FollowerLoad) -> list[Result]:
    """Requests beside growing logs, with their followers and then without."""
    with closing(server.connect()) as connection, _logs(connection, load) as commands:
        session = connection.open_session()
        with _client(server, load, commands) as client:
            for command in commands:
                connection.ask("POST", f"/commands/{command}/stdin", {"write_id": "go", "data": "\n"})
            time.sleep(min(_SETTLE_SECONDS, load.seconds))
            used, began = processes.cpu_seconds(server.pid), time.monotonic()
            beside = _requests(connection, session, commands[0], load.seconds)
            elapsed = time.monotonic() - began
            facts: dict[str, Fact] = {
                "followers": load.followers,
                "logs": load.logs,
                "server_cpu_percent": round(100 * (processes.cpu_seconds(server.pid) - used) / elapsed),
                **_received(load, client, elapsed + min(_SETTLE_SECONDS, load.seconds)),
            }
        time.sleep(min(_SETTLE_SECONDS, load.seconds))
        alone = _requests(connection, session, commands[0], load.seconds / 3)
    return _figures(load, beside, alone, facts)


@contextmanager
def _logs(connection: Connection, load: FollowerLoad) -> Iterator[list[int]]:
    """Commands whose logs grow once they are told to."""
    argv = [sys.executable, "-I", "-S", "-c", _WRITER, str(load.total / load.logs)]
    commands: list[int] = []
    try:
        for _ in range(load.logs):
            path = f"/sessions/{connection.open_session()}/commands"
            commands.append(connection.ask("POST", path, {"argv": argv, "stdin": True})["id"])
        yield commands
    finally:
        for command in commands:
            connection.ask("POST", f"/commands/{command}/cancel", {})


@contextmanager
def _client(server: Server, load: FollowerLoad, commands: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    """Everybody follows."""
    arguments = [str(server.port), server.token, json.dumps(commands), str(load.followers)]
    argv = [sys.executable, "-I", "-S", "-c", _FOLLOWERS, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            if client.stdout.readline() != b"ready\n":
                raise OSError(f"the followers' client ended with {client.wait()}")
            yield client
        finally:
            client.kill()


def _requests(connection: Connection, session: int, command: int, seconds: float) -> dict[str, Samples]:
    """Each kind of request in turn, with a pause between the rounds."""

    def run() -> None:
        number = connection.submit(session, "true")
        connection.ask("GET", f"/commands/{number}/wait")

    kinds: dict[str, Callable[[], object]] = {
        "healthz": lambda: connection.ask("GET", "/healthz"),
        "whoami": lambda: connection.ask("GET", "/whoami"),
        "get_command": lambda: connection.ask("GET", f"/commands/{command}"),
        "run": run,
    }
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for kind, action in kinds.items():
            taken[kind].append(timed(action))
        time.sleep(_PAUSE_SECONDS)
    return {kind: Samples.of(values) for kind, values in taken.items()}


def _received(load: FollowerLoad, client: subprocess.Popen[bytes], seconds: float) -> dict[str, Fact]:
    """How much came in all, and how far behind its log the last follower is."""
    output, _ = client.communicate()
    told = json.loads(output)
    slowest = min((min(places) for places in told["places"].values()), default=0)
    grown = load.total / load.logs * seconds
    behind = max(0.0, (grown - slowest) / (load.total / load.logs))
    return {"received_mb_per_second": round(told["received"] / seconds / 1e6, 1), "last_behind_s": round(behind, 2)}


def _figures(
    load: FollowerLoad, beside: dict[str, Samples], alone: dict[str, Samples], facts: dict[str, Fact]
) -> list[Result]:
    reads = [Samples.of([value for kind in _READS for value in found[kind].values]) for found in (beside, alone)]
    for kind, samples in beside.items():
        facts |= samples.facts(kind) | alone[kind].facts(f"{kind}_alone")
    name = f"beside_followers_of_{load.logs}"
    return [
        Figure(name=f"{name}_p99", value=milliseconds(reads[0].p99), unit="ms", bar=at_most(100), facts=facts),
        Figure(name=f"{name}_run_p99", value=milliseconds(beside["run"].p99), unit="ms"),
        Figure(name=f"{name}_ratio", value=round(reads[0].p50 / reads[1].p50, 2), unit="x"),
    ]
