"""Host tasks over HTTP: how long a submission takes, and how many tasks are done in a second."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figures import Figure, Result, Samples, Size, at_least, at_most, interleaved, milliseconds
from benchmarks.service.serving import Connection, serving

_SUBMITS = {Size.FULL: 300, Size.QUICK: 60, Size.SMALLEST: 3}
_MOCKS = {Size.FULL: 200, Size.QUICK: 40, Size.SMALLEST: 3}
_SHELLS = {Size.FULL: 300, Size.QUICK: 100, Size.SMALLEST: 3}
_ROUNDS = {Size.FULL: 7, Size.QUICK: 3, Size.SMALLEST: 1}
_IN_FLIGHT = 16
_PAUSES = 0.3  # of one mock task
_SCRIPT = "true"


def measure(size: Size) -> list[Result]:
    """A server and its client, each in a process of its own; the shell tasks in turns with ``xargs``."""
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as home, _home(home):
        with _tasks(max_concurrency=1) as tasks:
            submit = tasks.submissions(_SUBMITS[size])
        with _tasks(max_concurrency=_IN_FLIGHT) as tasks:
            mock = _MOCKS[size] / tasks.run_all(_MOCKS[size])
        with _tasks(max_concurrency=_IN_FLIGHT, executor="shell", cmd_template=_SCRIPT) as tasks:
            count = _SHELLS[size]
            ours, xargs = interleaved(lambda: tasks.run_all(count), lambda: _xargs(count), rounds=_ROUNDS[size])
    return [
        Figure(
            name="submit_p50", value=milliseconds(submit.p50), unit="ms", bar=at_most(5), facts=submit.facts("submit")
        ),
        Figure(
            name="mock_per_second",
            value=round(mock, 1),
            unit="tasks/s",
            facts={"in_flight": _IN_FLIGHT, "possible": round(_IN_FLIGHT / _PAUSES, 1)},
        ),
        Figure(
            name="shell_per_second",
            value=round(count / ours.p50, 1),
            unit="tasks/s",
            facts={"in_flight": _IN_FLIGHT, "xargs_per_second": round(count / xargs.p50, 1)},
        ),
        Figure(
            name="shell_of_xargs",
            value=round(xargs.p50 / ours.p50, 2),
            unit="x",
            bar=at_least(0.4),
            facts=ours.facts("ours") | xargs.facts("xargs"),
        ),
    ]


@contextmanager
def _home(folder: str) -> Iterator[None]:
    """A login shell reads somebody's profile: here it is empty, on both sides."""
    before = os.environ.get("HOME", "/")
    os.environ["HOME"] = folder
    try:
        yield
    finally:
        os.environ["HOME"] = before


@contextmanager
def _tasks(*, max_concurrency: int, **config: str) -> Iterator[_Client]:
    """A client of a server with these settings."""
    variables = {f"HOST_RUNNER_{name.upper()}": value for name, value in config.items()}
    with serving({**variables, "DEBUG_SERVER_RUNNER_MAX_CONCURRENCY": str(max_concurrency)}) as server:
        connection = server.connect()
        client = _Client(connection)
        try:
            yield client
        finally:
            client.cancel_all()
            connection.close()


class _Client:
    """Submits tasks and waits for them, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._submitted: list[str] = []

    def submit(self) -> str:
        """A task that must be accepted; returns its id."""
        name = f"t{len(self._submitted)}"
        self._connection.ask("POST", "/tasks/submit", {"task_id": name, "run_id": "run", "prompt": "hello"})
        self._submitted.append(name)
        return name

    def submissions(self, count: int) -> Samples:
        """One after the other, while the engine is busy with those before."""
        found = []
        for _ in range(count + 5):
            began = time.perf_counter()
            self.submit()
            found.append(time.perf_counter() - began)
        return Samples.of(found[5:])

    def run_all(self, count: int) -> float:
        """Seconds from the first submission to the last end."""
        began = time.perf_counter()
        for name in [self.submit() for _ in range(count)]:
            found = self._connection.ask("GET", f"/tasks/{name}/wait?timeout=600")
            assert found["status"] == "success", found
        return time.perf_counter() - began

    def cancel_all(self) -> None:
        """The newest first: the engine must not start what is about to go."""
        items = self._connection.ask("GET", "/tasks?limit=1000")["items"]
        for item in reversed(items):
            if item["status"] in ("queued", "running"):
                self._connection.ask("POST", f"/tasks/{item['task_id']}/cancel")


def _xargs(count: int) -> float:
    """Seconds for the same shells, with nothing around them."""
    words = "\n".join(str(number) for number in range(count)).encode()
    began = time.perf_counter()
    subprocess.run(["xargs", "-P", str(_IN_FLIGHT), "-n", "1", "bash", "-lc", _SCRIPT], input=words, check=True)
    return time.perf_counter() - began
