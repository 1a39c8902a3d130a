"""``debug-server tasks``: the server alone on its own port, and the commands that speak to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.running import ROOT
from tests.tasks.stress import ServerProcess
from tests.tasks.task_server import TaskServer


def environment(server: str) -> dict[str, str]:
    """That of somebody who has this server and no settings of his own."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_URL": server, "DEBUG_SERVER_HOME": "/nonexistent"}


def tasks(server: str, *arguments: str, text: str | None = None, token: str = "") -> subprocess.CompletedProcess[str]:
    """One call of the program; one that the server's own process starts needs a token."""
    environ = {**environment(server), "DEBUG_SERVER_TOKEN": token}
    argv = [sys.executable, "-m", "debug_server", *arguments]
    return subprocess.run(argv, env=environ, input=text, capture_output=True, text=True, check=False, timeout=100)


def test_the_commands(server: TaskServer, tmp_path: Path) -> None:
    """submit, list, get, wait, logs and cancel say what the API says; refusals are one line and a status."""
    call = partial(tasks, token=server.local.store.tokens.create("caller", ["admin"])[1])
    done = call(server.url, "tasks", "submit", "t", "-", "--follow", text="from a pipe")
    assert (done.returncode, done.stdout) == (0, "from a pipe"), done.stderr
    assert "mock execution completed" in done.stderr
    listed = json.loads(call(server.url, "--json", "tasks", "list").stdout)["items"]
    assert [item["task_id"] for item in listed] == ["t"]
    assert json.loads(call(server.url, "--json", "tasks", "get", "t").stdout)["status"] == "success"
    assert call(server.url, "tasks", "logs", "t").stdout == "from a pipe"
    assert "task t is success" in call(server.url, "tasks", "cancel", "t").stdout
    missing = call(server.url, "tasks", "get", "none")
    assert (missing.returncode, missing.stderr) == (
        1,
        "debug-server: there is no task 'none': see `debug-server tasks list`\n",
    )
    place = os.path.relpath(tmp_path)
    shared = ["--mode", "shared-workspace", "--repo", place, "--lock", f"{place}/../b", "-f"]
    assert call(server.url, "tasks", "submit", "s", "in a place", *shared).stdout == "in a place"
    wrong = call(server.url, "tasks", "submit", "t", "x", "--mode", "magic")
    assert wrong.returncode == 2 and "execution_mode" in wrong.stderr
    away = call("http://127.0.0.1:9", "tasks", "list")
    assert away.returncode == 75 and "debug-server tasks serve" in away.stderr


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_follower_outlives_the_server(tmp_path: Path, number: int) -> None:
    """Killed or asked to leave, a server is waited for: every byte comes once, and the exit status is the task's."""
    gate = tmp_path / "gate"
    process = ServerProcess(
        tmp_path, template=f"echo one; while ! test -e {gate}; do sleep 0.05; done; echo two; exit 3", in_flight=2
    )
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "debug_server", "tasks", "submit", "t", "x", "--follow"],
            env=environment(process.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "one\n"
            process.replace(number)
            gate.touch()
            out, errors = follower.communicate(timeout=100)
        assert (follower.returncode, out) == (3, "two\n"), errors
        assert "shell execution failed" in errors
    finally:
        process.close()


@pytest.mark.usefixtures("nothing_left")
def test_tasks_alone(tmp_path: Path) -> None:
    """The server of tasks alone has them and the probes, and nothing else."""
    process = ServerProcess(tmp_path, template="echo {prompt}", in_flight=2)
    try:
        with httpx.Client(base_url=process.url, timeout=60) as client:
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/healthz").json()["tasks"] == {"executor": "shell"}
            body = {"task_id": "t", "run_id": "r", "prompt": "hi"}
            assert client.post("/tasks/submit", json=body).json()["status"] == "queued"
            assert client.get("/tasks/t/wait").json()["stdout"] == "hi\n"
            assert client.get("/sessions").status_code == 404
    finally:
        process.close()
