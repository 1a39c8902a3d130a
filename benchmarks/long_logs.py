"""What it costs to read a command's log of 10 GB, against one of 10 MB: while the command runs, and after its end.

Both logs are written by a command of the server, through its keeper, so their indexes are real as well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.figures import Figure, Result, Size, at_most
from benchmarks.growth import Work, verbs_compared
from benchmarks.service.serving import Connection, Server, serving

_LARGE = {Size.FULL: 10_000_000_000, Size.QUICK: 1_000_000_000, Size.SMALLEST: 200_000}
_SMALL = {Size.FULL: 10_000_000, Size.QUICK: 10_000_000, Size.SMALLEST: 100_000}
_REQUESTS = {Size.FULL: 20, Size.QUICK: 10, Size.SMALLEST: 1}  # of each verb, in a round
_ROUNDS = {Size.FULL: 5, Size.QUICK: 3, Size.SMALLEST: 1}
_WRITE_SECONDS = 600.0
_WAIT = 0.02  # of an exec that is repeated while its command runs
_SEARCH_SECONDS = at_most(12)  # a search and a digest end after ten seconds, wherever they are

# Lines of text on both streams, ten times as many on stdout; then it stays until it is cancelled.
_WRITER = """
import os, sys, time
left = int(sys.argv[1])
block = b"".join(b"%06d one line of a log that nobody can read to its end, of about a hundred bytes in all, no more\\n"
                 % number for number in range(655))
number = 0
while left > 0:
    number += 1
    data = memoryview(block)[:left]
    left -= len(data)
    while data:
        data = data[os.write(2 if number % 10 == 0 else 1, data):]
time.sleep(3600)
"""


def measure(size: Size) -> list[Result]:
    """Each verb on both logs, in turns."""
    with serving() as server:
        connection = server.connect()
        sizes = (_SMALL[size], _LARGE[size])
        logs = [_Log(server, connection, total) for total in sizes]
        asked = [(server.pid, log.requests()) for log in logs]
        compare = partial(
            verbs_compared, small=asked[0], large=asked[1], requests=_REQUESTS[size], rounds=_ROUNDS[size]
        )
        results = compare("log of a running command")
        for log in logs:
            log.end()
        results += compare("log of an ended command")
        results += logs[1].searches()
        connection.close()
        return results


class _Log:
    """A command with a long log, and what is asked about it."""

    def __init__(self, server: Server, connection: Connection, total: int) -> None:
        self._server, self._connection, self._total = server, connection, total
        self._key = f"long-log-{total}"
        argv = [sys.executable, "-I", "-S", "-c", _WRITER, str(total)]
        self._body = json.dumps({"argv": argv, "wait": _WAIT}).encode()
        self._command = int(self._exec()["command_id"])
        self._path = f"/commands/{self._command}"
        deadline = time.monotonic() + _WRITE_SECONDS
        while connection.ask("GET", self._path)["log_bytes"] < total:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{total} bytes were not written within {_WRITE_SECONDS:g} s")
            time.sleep(0.05)

    def requests(self) -> Mapping[str, Work]:
        """What takes as long as what it shows."""
        log, middle = f"{self._path}/log", self._total // 2
        asked = {
            "command": self._path,
            "tail": f"{log}/text?tail=100",
            "text of the middle": f"{log}/text?offset={middle}",
            "grep of the middle": f"{log}/text?offset={middle}&grep=000100.one",
            "grep of the last lines": f"{log}/text?tail=1000&grep=no.such.line",
        }
        found: dict[str, Work] = {name: partial(self._connection.answer, "GET", path) for name, path in asked.items()}
        return found | {"follow from the end": self._follow, "exec, answered again": self._exec}

    def _follow(self) -> None:
        """The first line that a follower of the last lines gets."""
        connection = self._server.connect()
        connection.first_line(f"{self._path}/log.ndjson?follow=true&offset={self._total - 1000}")
        connection.close()

    def end(self) -> None:
        """Cancel the command and wait for its end."""
        self._connection.ask("POST", f"{self._path}/cancel", {})
        deadline = time.monotonic() + _WRITE_SECONDS
        while self._connection.ask("GET", self._path)["finished_at"] is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def searches(self) -> list[Result]:
        """What may read everything, and therefore ends when its time is over."""
        asked = {"grep without a match": "/log/text?grep=no.such.line", "digest": "/log/digest"}
        return [self._seconds(name, self._path + path) for name, path in asked.items()]

    def _seconds(self, name: str, path: str) -> Result:
        began = time.perf_counter()
        self._connection.answer("GET", path)
        seconds = time.perf_counter() - began
        return Figure(name=f"{name} of {self._total} bytes", value=seconds, unit="s", bar=_SEARCH_SECONDS)

    def _exec(self) -> Any:
        return json.loads(self._connection.answer("POST", "/exec", self._body, key=self._key))
