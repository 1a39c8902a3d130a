"""Callers without a token cannot crowd out the server's own user and the holders of tokens."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.running import ROOT
from tests.surfaces.http.serving import SECONDS, Process, Served, answered, open_local

Processes = Callable[..., Process]
NOBODY = 65534
CROWD = Path(__file__).parents[1] / "programs/crowd.py"
CONNECTIONS = 64
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@needs_root
@pytest.mark.usefixtures("nothing_left")
def test_who_is_served_beside_a_crowd(processes: Processes, base: Path) -> None:
    """While the requests of 64 connections wait for their turn, the server's own user and another user's request with
    a token that is known are served at once, over new connections; SIGTERM does not wait for the crowd."""
    with open_local(base) as local:
        secret = local.store.tokens.create("tester", ["admin"])[1]
    slow = json.dumps({"server": {"unidentified_per_second": 0.001}})
    process = processes(options=slow).started()
    known = {"Authorization": f"Bearer {secret}"}
    assert answered(httpx.get(f"{process.url}/whoami", headers=known, timeout=SECONDS), 200)["name"] == "tester"
    crowd = subprocess.Popen(
        [sys.executable, str(CROWD), str(NOBODY), str(process.port), str(CONNECTIONS), secret],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert crowd.stdout is not None and crowd.stdout.readline() == "ready\n"
        for _ in range(20):
            assert httpx.get(f"{process.url}/metrics", timeout=SECONDS).status_code == 200
        said, _ = crowd.communicate("go on\n", timeout=SECONDS)
    finally:
        crowd.kill()
        crowd.wait()
    found = json.loads(said)
    assert found["holder"] == "HTTP/1.1 200"
    assert found["strangers"] <= 1, "one begins in a thousand seconds"
    process.terminate()
    assert process.output()[0] == 0


def test_users_take_turns() -> None:
    """A user who asks once waits behind one request of each other user, not behind all of theirs."""
    from debug_server.surfaces.http.unidentified import Turns

    began: list[str] = []

    async def wait() -> None:
        turns = Turns(per_second=100_000)
        done = asyncio.Event()

        def ask(user: str, *, last: bool = False, left: bool = False) -> Callable[[], bool]:
            def begin() -> bool:
                began.append(user)
                if last:
                    done.set()
                return not left

            turns.wait(user, begin)
            return begin

        for number in range(100):
            ask("many", last=number == 99)
        ask("few")
        ask("gone", left=True)
        forgotten = ask("gone")
        turns.leave("gone", forgotten)
        await done.wait()
        assert len(turns) == 0

    asyncio.run(wait())
    assert began[:5] == ["many", "many", "few", "gone", "many"]
    assert began.count("many") == 100 and len(began) == 102


def test_one_document_for_all(shared: Served) -> None:
    """The document is encoded once; every answer is the same bytes, whole."""
    first, second = (shared.admin.get("/openapi.json") for _ in range(2))
    assert shared.app.encoded_document() is shared.app.encoded_document()
    assert first.content == second.content == shared.app.encoded_document()
    assert first.json() == shared.app.openapi()
    assert int(first.headers["content-length"]) == len(first.content)
    assert shared.admin.head("/openapi.json").content == b""
