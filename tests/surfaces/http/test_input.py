"""What is sent to a command that is about to start, that waits, or that does not listen."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any

import pytest

from debug_server.engine import slot_check
from debug_server.model import Command
from debug_server.runner import pipeline
from debug_server.runner.keeper.rundir import HANDLE
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.launch import launch
from debug_server.runner.run_dirs import read_json, run_dir_for
from debug_server.runner.watchdog import Watchdog
from debug_server.service import stdin
from debug_server.service.commands import CommandVerbs
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused

LINE = {"write_id": "1", "data": "hello\n", "close": True}


def test_a_command_about_to_start_is_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Input for a command that is claimed and not begun yet reaches it; one that waits for its turn can have none."""
    asked, begun_by = threading.Event(), CommandVerbs._wait_until_started

    async def look(verbs: CommandVerbs, command: Command, deadline: float) -> Command:
        if command.id == first:
            asyncio.get_running_loop().call_later(0.1, asked.set)
        return await begun_by(verbs, command, deadline)

    def late(*arguments: Any) -> Any:
        assert asked.wait(100)
        return launch(*arguments)

    monkeypatch.setattr(CommandVerbs, "_wait_until_started", look)
    monkeypatch.setattr(pipeline, "launch", late)
    session = served.session()
    first = served.submit(session, "cat", stdin=True)
    second = served.submit(session, "cat", stdin=True)
    error = refused(served.admin.post(f"/commands/{second}/stdin", json=LINE), 409, "keeper_error")
    assert "is pending: it is not running" in error["message"]
    answered(served.admin.post(f"/commands/{first}/stdin", json=LINE), 200)
    answered(served.admin.get(f"/commands/{first}/wait?timeout=100"), 200)
    assert served.admin.get(f"/commands/{first}/log").text == "hello\n"


@contextmanager
def _frozen_keeper(served: Served, command: int) -> Iterator[None]:
    """A keeper that hears nothing during the block."""
    row = eventually(lambda: (found := served.local.store.commands.get(command)).status == "running" and found)
    handle = read_json(run_dir_for(served.local.settings.paths.keepers_dir, command, row.attempt) / HANDLE)
    assert handle is not None
    os.kill(handle["keeper"]["pid"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(handle["keeper"]["pid"], signal.SIGCONT)


def test_a_keeper_that_does_not_answer_is_no_defect_of_the_server(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who signals a command whose keeper gets no processor is told so; the signal comes as soon as it gets some."""
    command = served.submit(served.session(), "sleep", "600")
    path = f"/commands/{command}/signal"
    with _frozen_keeper(served, command):
        request = KeeperConnection.request
        monkeypatch.setattr(KeeperConnection, "request", partialmethod(request, timeout=0.5))
        error = refused(served.admin.post(path, json={"signal": 15}), 409, "keeper_error")
        assert "did not answer within" in error["message"]
    monkeypatch.undo()  # a busy machine may need longer than half a second
    ended = answered(served.admin.get(f"/commands/{command}/wait", params={"timeout": SECONDS}), 200)
    assert ended["exit_reason"] == "signaled"


def test_input_that_nobody_reads(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the pipe holds, to a command that reads later: an error that says so, and every byte arrives once."""
    monkeypatch.setattr(stdin, "_SECONDS", 0.5)
    script = f"while [ ! -e {served.root}/go ]; do sleep 0.05; done; wc -c"
    command = served.submit(served.session(), "sh", "-c", script, stdin=True)
    path, lines = f"/commands/{command}/stdin", {"write_id": "1", "data": "x" * 300_000}
    assert "did not read for 0.5 s" in refused(served.admin.post(path, json=lines), 409, "keeper_error")["message"]
    monkeypatch.undo()  # a busy machine may need longer than half a second
    (served.root / "go").touch()
    answered(served.admin.post(path, json={**lines, "close": True}), 200)
    answered(served.admin.get(f"/commands/{command}/wait?timeout=100"), 200)
    assert served.admin.get(f"/commands/{command}/log").text.strip() == "300000"


@pytest.mark.parametrize("name", ["TERM", "SIGTERM", "term", 15, "15"])
def test_signals_by_name_and_number(shared: Served, name: object) -> None:
    """A signal is named as in a shell, or numbered."""
    session = shared.session()
    command = shared.submit(session, "sleep", "600")
    answered(shared.admin.post(f"/commands/{command}/signal", json={"signal": name}), 200)
    ended = answered(shared.admin.get(f"/commands/{command}/wait", params={"timeout": SECONDS}), 200)
    assert (ended["exit_reason"], ended["exit"]["signal"]) == ("signaled", signal.SIGTERM)
    answered(shared.admin.delete(f"/sessions/{session}"), 200)


@pytest.mark.parametrize("wrong", ["NOPE", 0, 65, "0", True, 1.5, None, ""])
def test_unknown_signals_are_refused(shared: Served, wrong: object) -> None:
    """Whatever is no signal is refused by the name of its field."""
    error = refused(shared.admin.post("/commands/1/signal", json={"signal": wrong}), 422, "invalid_input")
    assert error["field"] == "signal"


def test_bodies_that_another_site_could_send_are_refused(shared: Served) -> None:
    """A body is JSON by its content type; what ``curl -d`` sends is taken with a token, as no page can send one."""
    body = b'{"name": "repo", "remote_url": "/x"}'
    kinds = {"application/json": 409, "application/merge-patch+json; charset=utf-8": 409, "text/plain": 415}
    kinds |= {"multipart/form-data; boundary=x": 415, "application/x-www-form-urlencoded": 409}
    for kind, status in kinds.items():
        answer = shared.admin.post("/repository/init", content=body, headers={"Content-Type": kind})
        assert answer.status_code == status, f"{kind}: {answer.text}"
    told = refused(
        shared.admin.post("/repository/init", content=body, headers={"Content-Type": "text/plain"}),
        415,
        "unsupported_media_type",
    )
    assert "Content-Type: application/json" in told["message"]


def test_a_server_whose_slots_are_stuck_is_not_ready(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While every slot is held by a keeper that does not answer, /readyz says so, and says ok again afterwards."""
    monkeypatch.setattr(slot_check, "_SECONDS", 0.5)
    monkeypatch.setattr(Watchdog, "check", lambda *_: None)  # it would wake the keepers
    slots = served.local.settings.max_concurrency
    commands = [served.submit(served.session(), "sleep", "600") for _ in range(slots)]
    with ExitStack() as frozen:
        for command in commands:
            frozen.enter_context(_frozen_keeper(served, command))
        told = answered(served.admin.get("/readyz"), 503)
        assert f"all {slots} slots are held by keepers that do not answer" in told["checks"]["engine"]
    monkeypatch.undo()  # a busy machine may need longer than half a second
    assert answered(served.admin.get("/readyz"), 200)["checks"]["engine"] == "ok"
    for command in commands:
        answered(served.admin.post(f"/commands/{command}/cancel"), 200)
