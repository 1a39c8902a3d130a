"""What a crowd of followers costs everybody else: a thousand of them, in another process, of logs that grow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.figures import Figure, Result, Samples, Size, at_most, milliseconds
from benchmarks.service.serving import Server

_WRITER = """
import os, sys, time
input()
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    os.write(1, b"x" * 999 + b"\\n")
    time.sleep(1000 / float(sys.argv[1]))
"""

_FOLLOWERS = """
import asyncio, json, sys
from websockets.asyncio.client import connect
port, token, commands, count = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])

async def main():
    options = {"additional_headers": {"Authorization": "Bearer " + token}, "compression": None, "max_size": None}
    sockets = []
    for number in range(count):
        url = f"ws://127.0.0.1:{port}/commands/{commands[number % len(commands)]}/log"
        sockets.append(await connect(url, ping_interval=None, open_timeout=60, **options))
    print("ready", flush=True)

    async def read(socket):
        async for _ in socket:
            pass

    await asyncio.gather(*map(read, sockets))

asyncio.run(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amounts:
    followers: int
    logs: int
    total: float  # bytes a second, of all logs together
    seconds: float


_AMOUNTS = {
    Size.FULL: _Amounts(followers=1000, logs=8, total=1e6, seconds=10.0),
    Size.QUICK: _Amounts(followers=500, logs=8, total=0.5e6, seconds=5.0),
    Size.SMALLEST: _Amounts(followers=3, logs=2, total=1e4, seconds=0.2),
}


def measure(server: Server, size: Size) -> list[Result]:
    """How long a request takes meanwhile."""
    amounts = _AMOUNTS[size]
    connection = server.connect()
    rate = str(amounts.total / amounts.logs)
    argv = [sys.executable, "-I", "-S", "-c", _WRITER, rate, str(amounts.seconds + 5)]
    commands = [
        connection.ask("POST", f"/sessions/{connection.open_session()}/commands", {"argv": argv, "stdin": True})["id"]
        for _ in range(amounts.logs)
    ]
    arguments = [str(server.port), server.token, json.dumps(commands), str(amounts.followers)]
    client = subprocess.Popen([sys.executable, "-c", _FOLLOWERS, *arguments], stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        client.stdout.readline()
        for command in commands:
            connection.ask("POST", f"/commands/{command}/stdin", {"write_id": "go", "data": "\n"})
        taken, end = [], time.monotonic() + amounts.seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            connection.ask("GET", "/whoami")
            taken.append(time.perf_counter() - began)
            time.sleep(0.02)
    finally:
        client.kill()
        client.communicate()
    for command in commands:
        connection.ask("POST", f"/commands/{command}/cancel", {})
    connection.close()
    found = Samples.of(taken)
    facts = {"followers": amounts.followers, "logs": amounts.logs} | found.facts("request")
    return [
        Figure(
            name="request_beside_followers_p99", value=milliseconds(found.p99), unit="ms", bar=at_most(100), facts=facts
        )
    ]
