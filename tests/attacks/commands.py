"""Attacks by what a command leaves behind: mounts, processes, stopped keepers."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial

import httpx

from tests.attacks.requests import (
    await_running,
    configured,
    open_session,
    run,
    start_run,
    submit,
    wait_ended,
)
from tests.attacks.target import AttackSetup, target
from tests.running import carrying, eventually, new_mark


def bind_mounts(setup: AttackSetup) -> Iterator[str]:
    """What a command mounts in its folder is not deleted with the folder."""
    precious = setup.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep me")
    os.chown(precious, setup.uid, setup.uid)
    mounting = f"mkdir m && mount --bind {precious} m; mkdir t && mount -t tmpfs none t; chattr +i . 2>/dev/null; true"
    template = {"HOST_RUNNER_EXECUTOR": "shell", "HOST_RUNNER_CMD_TEMPLATE": f"{mounting} # {{task_id}}"}
    for backend in ("auto", "pool"):
        settings = f'[workspaces]\nbackend = "{backend}"\n'
        with configured(setup, f"bind-mounts-{backend}", settings, template) as server:
            with server.client(timeout=60) as client:
                session = open_session(client)
                command = submit(client, session, ["sh", "-c", mounting])
                wait_ended(client, command["id"], 60)
                if (answer := client.delete(f"/sessions/{session}")).status_code != 200:
                    yield f"{backend}: the session cannot be closed: {answer.text}"
                if client.get(f"/sessions/{session}").json()["status"] == "running":
                    yield f"{backend}: the session stays open"
                asked = {"task_id": "t", "run_id": "r", "prompt": "x"}
                if setup.uid == os.geteuid():
                    httpx.post(f"{server.base_url}/tasks/submit", json=asked).raise_for_status()
                    httpx.get(f"{server.base_url}/tasks/t/wait?timeout=60", timeout=70).raise_for_status()
                again = open_session(client)
                ended = wait_ended(client, submit(client, again, ["ls"])["id"], 60)
                if ended["exit_code"] != 0:
                    yield f"{backend}: a later session does not work: {ended}"
                client.delete(f"/sessions/{again}").raise_for_status()
            server.stop()
        if not (precious / "file").exists():
            yield f"{backend}: cleaning up deleted what a command had mounted"


def leaving_the_group(setup: AttackSetup) -> Iterator[str]:
    """A command that moves a child out of its control group leaves nothing running."""
    escape = (
        "for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/*/tasks; do"
        " echo $$ > $f; done 2>/dev/null; sleep 600; :"
    )
    with target(setup, "leaving-the-group") as server, server.client() as client:
        for how in ("exit", "timeout", "cancel"):
            mark = new_mark(how)
            argv = ["sh", "-c", f"setsid sh -c '{escape}' {mark} & sleep 0.5; {_then(how)}"]
            command = start_run(client, argv, wall_seconds=2 if how == "timeout" else 60)
            if how == "cancel":
                await_running(client, [command])
                time.sleep(1.0)  # until the escape has had its chance
                client.post(f"/commands/{command}/cancel").raise_for_status()
            wait_ended(client, command, 60)
            with contextlib.suppress(AssertionError):
                eventually(partial(_gone, mark))
            if left := carrying(mark):
                yield f"after {how}, processes {left} go on"


def _then(how: str) -> str:
    return "exit 0" if how == "exit" else "sleep 600"


def stopped_keepers(setup: AttackSetup) -> Iterator[str]:
    """A command that stops its keeper is ended all the same, and others still run."""
    stop = "kill -STOP $PPID 2>/dev/null; sleep 600"
    with target(setup, "stopped-keepers") as server, server.client() as client:
        timed = [start_run(client, ["sh", "-c", stop], wall_seconds=2) for _ in range(8)]
        for number in timed:
            ended = wait_ended(client, number, 120)
            if ended["exit_reason"] not in ("timed_out", "lost"):
                yield f"command {number} with a stopped keeper ended as {ended['exit_reason']}"
        ninth = run(server, client, ["true"], wall_seconds=60)
        if ninth["exit_code"] != 0:
            yield f"after eight stopped keepers a command ends as {ninth}"
        number = start_run(client, ["sh", "-c", stop])
        await_running(client, [number])
        client.post(f"/commands/{number}/cancel", timeout=60)
        ended = wait_ended(client, number, 120)
        if ended["exit_reason"] not in ("cancelled", "lost"):
            yield f"a cancelled command with a stopped keeper ended as {ended['exit_reason']}"


def _gone(mark: str) -> bool:
    return not carrying(mark)
