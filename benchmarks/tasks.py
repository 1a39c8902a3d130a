"""Host tasks over HTTP: how long a submission takes, and how many tasks are done in a second."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from benchmarks.figures import Figure, Result, Samples, Size, at_least, at_most, milliseconds
from tests.tasks.task_server import TaskServer

_SUBMITS = {Size.FULL: 300, Size.QUICK: 60, Size.SMALLEST: 3}
_MOCKS = {Size.FULL: 200, Size.QUICK: 40, Size.SMALLEST: 3}
_SHELLS = {Size.FULL: 300, Size.QUICK: 60, Size.SMALLEST: 3}
_IN_FLIGHT = 16
_PAUSES = 0.3  # of one mock task
_SCRIPT = "true"


def measure(size: Size) -> list[Result]:
    """A server in this process, a client beside it."""
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name, _home(name):
        folder = Path(name)
        submit = _submissions(folder / "submit", _SUBMITS[size])
        mock = _mock(folder / "mock", _MOCKS[size])
        ours = _shell(folder / "shell", _SHELLS[size])
        xargs = _xargs(_SHELLS[size])
    possible = _IN_FLIGHT / _PAUSES
    ratio = xargs / ours
    return [
        Figure(
            name="submit_p50", value=milliseconds(submit.p50), unit="ms", bar=at_most(5), facts=submit.facts("submit")
        ),
        Figure(
            name="mock_per_second",
            value=round(mock, 1),
            unit="tasks/s",
            facts={"in_flight": _IN_FLIGHT, "possible": round(possible, 1)},
        ),
        Figure(
            name="shell_per_second",
            value=round(1 / ours, 1),
            unit="tasks/s",
            facts={"in_flight": _IN_FLIGHT, "xargs_per_second": round(1 / xargs, 1)},
        ),
        Figure(name="shell_of_xargs", value=round(ratio, 2), unit="x", bar=at_least(0.5)),
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


def _submissions(folder: Path, count: int) -> Samples:
    """One after the other, while the engine is busy with those before."""
    server = TaskServer(folder, max_concurrency=1)
    try:
        found = []
        for number in range(count + 5):
            began = time.perf_counter()
            server.submitted(f"t{number}")
            found.append(time.perf_counter() - began)
        return Samples.of(found[5:])
    finally:
        _cancel_all(server)
        server.close()


def _cancel_all(server: TaskServer) -> None:
    """The newest first: the engine must not start what is about to go."""
    items: list[dict[str, Any]] = server.client.get("/tasks", params={"limit": 1000}).json()["items"]
    for item in reversed(items):
        server.cancel(item["task_id"])


def _mock(folder: Path, count: int) -> float:
    """Tasks in a second."""
    server = TaskServer(folder, max_concurrency=_IN_FLIGHT)
    try:
        return count / _run_all(server, count)
    finally:
        server.close()


def _shell(folder: Path, count: int) -> float:
    """Seconds of one task."""
    server = TaskServer(folder, max_concurrency=_IN_FLIGHT, executor="shell", cmd_template=_SCRIPT)
    try:
        return _run_all(server, count) / count
    finally:
        server.close()


def _run_all(server: TaskServer, count: int) -> float:
    """From the first submission to the last end."""
    began = time.perf_counter()
    for number in range(count):
        server.submitted(f"t{number}")
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for number in range(count):
            found = client.get(f"/tasks/t{number}/wait", params={"timeout": 600}).json()
            assert found["status"] == "success", found
    return time.perf_counter() - began


def _xargs(count: int) -> float:
    """Seconds of one command of the same kind, with nothing around it."""
    began = time.perf_counter()
    words = "\n".join(str(number) for number in range(count)).encode()
    subprocess.run(["xargs", "-P", str(_IN_FLIGHT), "-n", "1", "bash", "-lc", _SCRIPT], input=words, check=True)
    return (time.perf_counter() - began) / count
