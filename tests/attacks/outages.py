"""A store or a disk that fails under the server."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from debug_server.disk import detach
from tests.attacks.requests import (
    await_running,
    open_session,
    run,
    start_run,
    submit,
    wait_ended,
)
from tests.attacks.target import AttackSetup, target
from tests.running import eventually
from tests.small_disk import free_bytes


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    """Nobody else can write to the database."""
    connection = sqlite3.connect(database, timeout=60, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def store_away(setup: AttackSetup) -> Iterator[str]:
    """Commands that end, or start, while the store is locked have their true end afterwards, without a restart."""
    seconds = 15 if setup.short else 75
    with target(setup, "store-away") as server, server.client(timeout=20) as client:
        ending = [start_run(client, ["sh", "-c", f"sleep 3; exit {code}"]) for code in range(3)]
        await_running(client, ending)
        starting = start_run(client, ["sh", "-c", f"echo began; sleep {seconds + 5}; echo done"])
        with _locked(server.data / "data" / "metadata.db"):
            time.sleep(seconds)
        for code, number in enumerate(ending):
            ended = wait_ended(client, number, 60)
            if ended["exit_code"] != code:
                yield f"command {number} exited {code} while the store was away and is {ended}"
        ended = wait_ended(client, starting, 60)
        if ended["exit_code"] != 0 or "done" not in client.get(f"/commands/{starting}/log").text:
            yield f"a command that was starting when the store went away ended as {ended}"
        if run(server, client, ["true"])["exit_code"] != 0:
            yield "no command runs after the store came back"


def full_disk(setup: AttackSetup) -> Iterator[str]:
    """A command that fills the disk ends, callers are answered meanwhile, and the next command works."""
    folder = setup.root / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", str(folder)], check=True)
    try:
        with target(setup, "full-disk", folder=folder) as server, server.client() as client:
            session = open_session(client)
            filling = ["sh", "-c", "head -c 200m /dev/zero > big || true; head -c 1m /dev/zero > more; sleep 5; exit 7"]
            number = submit(client, session, filling)["id"]
            deadline = time.monotonic() + (10 if setup.short else 75)
            while time.monotonic() < deadline:
                if (answer := client.get("/whoami")).status_code != 200:
                    yield f"while the disk is full /whoami answers {answer.status_code}: {answer.text[:200]}"
                    break
                time.sleep(0.5)
            ended = wait_ended(client, number, 90)
            if ended["exit_code"] != 7 and ended["exit_reason"] != "limit_exceeded":
                yield f"the command that filled the disk ended as {ended}"
            client.delete(f"/sessions/{session}").raise_for_status()
            eventually(lambda: free_bytes(folder) > 16 << 20, what="the session's files to be removed")
            again = open_session(client)
            ended = wait_ended(client, submit(client, again, ["true"])["id"], 60)
            if ended["exit_code"] != 0:
                yield f"after the disk was full a command ends as {ended}"
            client.delete(f"/sessions/{again}").raise_for_status()
    finally:
        detach(folder)
