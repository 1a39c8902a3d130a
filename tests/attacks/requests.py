"""The requests that the cases send."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx

from tests.attacks.target import AttackSetup, Target, target
from tests.running import ROOT, eventually

COMMIT = {"repository": "project", "commit_sha": "HEAD"}


@contextlib.contextmanager
def governing(setup: AttackSetup, name: str) -> Iterator[Target]:
    """A server with every part: tasks, events and runners, and the gateway over a worker that never gets ready."""
    variables = {"PROXY_USE_APP_SERVER": "true", "PROXY_ENABLE_METRICS": "true", "CODEX_BIN": "/bin/cat"}
    config = {file.name: file.read_text() for file in (ROOT / "config").glob("*.yml")}
    with configured(setup, name, "", variables, config) as server:
        yield server


@contextlib.contextmanager
def configured(
    setup: AttackSetup, name: str, settings: str, variables: dict[str, str], config: dict[str, str] | None = None
) -> Iterator[Target]:
    folder = setup.root / name
    (folder / "config").mkdir(parents=True)
    for file, text in {"runner.toml": settings, **(config or {})}.items():
        (folder / "config" / file).write_text(text)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, setup.uid, setup.uid)
    with target(setup, name, variables=variables) as found:
        yield found


def open_session(client: httpx.Client) -> int:
    answer = client.post("/sessions", json=COMMIT)
    answer.raise_for_status()
    number: int = answer.json()["id"]
    return number


def submit(client: httpx.Client, session: int, argv: list[str]) -> dict[str, Any]:
    answer = client.post(f"/sessions/{session}/commands", json={"argv": argv})
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def start_run(client: httpx.Client, argv: list[str], **limits: float) -> int:
    answer = client.post("/runs", json={"argv": argv, "limits": limits, **COMMIT})
    answer.raise_for_status()
    return command_number(answer.json())


def command_number(run: dict[str, Any]) -> int:
    number: int = run["command"]["id"] if "command" in run else run["id"]
    return number


def run(server: Target, client: httpx.Client, argv: list[str], **limits: float) -> dict[str, Any]:
    return wait_ended(client, start_run(client, argv, **limits), 90)


def await_running(client: httpx.Client, numbers: list[int]) -> None:
    for number in numbers:
        eventually(partial(_began, client, number))


def _began(client: httpx.Client, number: int) -> bool:
    return bool(client.get(f"/commands/{number}").json()["status"] != "pending")


def wait_ended(client: httpx.Client, number: int, seconds: float) -> dict[str, Any]:
    """The command once it has ended; fails after ``seconds``. A server that is away for a moment is asked again."""
    deadline = time.monotonic() + seconds
    last: dict[str, Any] = {}
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            answer = client.get(f"/commands/{number}")
            if answer.is_success:
                last = answer.json()
                if last["status"] not in ("pending", "running"):
                    return last
        time.sleep(0.05)
    raise AssertionError(f"command {number} did not end within {seconds:g} s: {last}")


def log_of(client: httpx.Client, number: int) -> str:
    """What a command has written."""
    answer = client.get(f"/commands/{number}/log")
    answer.raise_for_status()
    return answer.text
