"""A request with an Idempotency-Key is done once: repeated, raced, across restarts."""

from __future__ import annotations

import json
import socket as sockets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from debug_server.disk.ownership import Owner
from debug_server.errors import StoreUnavailableError
from debug_server.model import WorktreeStatus
from debug_server.store import open_store
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Process, Served, answered, refused
from tests.worktrees.places import small_remote


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def commands(served: Served, session: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answered(served.admin.get(f"/sessions/{session}/commands"), 200)["items"]
    return found


def test_a_repetition_gets_the_first_reply(shared: Served) -> None:
    """The same key and body run one command and give one reply, byte for byte; another body is a conflict."""
    path = f"/sessions/{shared.session()}/commands"
    first = shared.admin.post(path, json={"argv": ["true"]}, headers=keyed("a"))
    answered(shared.admin.get(f"/commands/{first.json()['id']}/wait?timeout=100"), 200)
    again = shared.admin.post(path, json={"argv": ["true"]}, headers=keyed("a"))
    assert (again.status_code, again.content) == (201, first.content)
    refused(shared.admin.post(path, json={"argv": ["false"]}, headers=keyed("a")), 409, "conflict")
    other = f"/sessions/{shared.session()}/commands"
    refused(shared.admin.post(other, json={"argv": ["true"]}, headers=keyed("a")), 409, "conflict")
    assert len(commands(shared, first.json()["session_id"])) == 1


def test_keys_belong_to_their_caller(shared: Served) -> None:
    """Two callers may use one key for different things."""
    mine, yours = shared.client(), shared.client()
    one, two = (
        client.post("/auth/tokens", json={"name": name}, headers=keyed("k")).json()
        for client, name in ((mine, "one"), (yours, "two"))
    )
    assert (one["name"], two["name"]) == ("one", "two") and one["id"] != two["id"]


def test_no_key_is_taken_for_that_of_a_line(shared: Served) -> None:
    """The lines that came with a session have keys of their own: a command under any key of the caller's is new."""
    body = {"repository": "repo", "commit": "HEAD", "commands": ["true"]}
    session = answered(shared.admin.post("/sessions", json=body, headers=keyed("lines")), 201)["id"]
    path = f"/sessions/{session}/commands"
    answered(shared.admin.post(path, json={"argv": ["false"]}, headers=keyed("lines/0")), 201)
    assert [row["command"] for row in commands(shared, session)] == [["/bin/bash", "-c", "true"], ["false"]]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_bad_keys(shared: Served, key: str) -> None:
    """A key that is empty, endless or not printable is refused."""
    refused(shared.admin.post("/auth/tokens", json={"name": "x"}, headers=keyed(key)), 422, "invalid_input")


def test_a_failed_request_may_be_repeated(shared: Served) -> None:
    """A failure is not remembered: the same key works once its cause is gone."""
    body = {"name": "later", "remote_url": str(shared.remote.path)}
    run = {"repository": "later", "commit": "HEAD", "argv": ["true"]}
    refused(shared.admin.post("/runs", json=run, headers=keyed("f")), 404, "not_found")
    answered(shared.admin.post("/repository/init", json=body), 201)
    answered(shared.admin.post("/runs", json=run, headers=keyed("f")), 201)


@pytest.mark.parametrize("round_", range(3))
def test_requests_that_race(shared: Served, round_: int) -> None:
    """Of twelve equal requests at the same time one runs, and all get its reply."""
    body = {"repository": "repo", "commit": "HEAD", "argv": ["true"]}
    before = len(answered(shared.admin.get("/sessions", params={"limit": 1000}), 200)["items"])

    def post(_: int) -> bytes:
        return shared.admin.post("/runs", json=body, headers=keyed(f"race-{round_}")).content

    with ThreadPoolExecutor(12) as pool:
        replies = set(pool.map(post, range(12)))
    assert len(replies) == 1
    assert len(answered(shared.admin.get("/sessions", params={"limit": 1000}), 200)["items"]) == before + 1


def test_a_client_that_hangs_up_does_not_undo(shared: Served) -> None:
    """A request whose client left before the reply is finished, and its repetition gets that reply."""
    body = {"repository": "repo", "commit": "HEAD", "argv": ["true"]}
    known = {item.id for item in shared.local.store.sessions.page(limit=1000)}

    def opened() -> list[int]:
        return [item.id for item in shared.local.store.sessions.page(limit=1000) if item.id not in known]

    text = json.dumps(body)
    head = f"POST /runs HTTP/1.1\r\nHost: x\r\nAuthorization: {shared.admin.headers['Authorization']}\r\n"
    with sockets.create_connection(("127.0.0.1", shared.port), timeout=SECONDS) as client:
        client.sendall(f"{head}Idempotency-Key: gone\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        (session,) = eventually(opened, what="a request that is under way")
    reply = answered(shared.admin.post("/runs", json=body, headers=keyed("gone")), 201)
    assert answered(shared.admin.post("/runs", json=body, headers=keyed("gone")), 201) == reply
    assert opened() == [session] == [reply["session"]["id"]]


class Dead:
    """The traces of a server that died in the middle of a keyed run."""

    def __init__(self, served: Served, key: str) -> None:
        self._served = served
        self._store = served.local.store
        self._keepers = served.local.settings.paths.keepers_dir
        caller = answered(served.admin.get("/whoami"), 200)
        self._caller, self._key = f"token-{caller['token_id']}", key
        owner = Owner(served.local.settings.paths.owners_dir)
        self._owner = owner.name
        owner.close()
        self.body = {"repository": "repo", "commit": "HEAD", "argv": ["sh", "-c", 'echo ran >> "$OUT"']}

    def forget_reply(self) -> None:
        """As if the server had died just before it kept the reply."""
        with self._store._database.write() as transaction:
            sql = "UPDATE keyed_requests SET reply = NULL, owner = ? WHERE request_key = ?"
            assert transaction.run(sql, (self._owner, self._key)) == 1

    def forget_command(self, command: int) -> None:
        """As if it had died before the command was queued; the next one gets its number and run directory."""
        eventually(lambda: not list(self._keepers.glob(f"{command}-*")), what="removal of the run directory")
        with self._store._database.write() as transaction:
            transaction.run("DELETE FROM artifacts WHERE command_id = ?", (command,))
            transaction.run("DELETE FROM commands WHERE id = ?", (command,))


def run(served: Served, dead: Dead, out: Path) -> dict[str, Any]:
    body = {**dead.body, "env": {"OUT": str(out)}}
    return answered(served.admin.post("/runs", json=body, headers=keyed("k")), 201)


def test_a_crash_after_the_command_was_queued(served: Served, tmp_path: Path) -> None:
    """The next server answers with the command that there is; it ran once."""
    dead, out = Dead(served, "k"), tmp_path / "out"
    first = run(served, dead, out)
    answered(served.admin.get(f"/commands/{first['command']['id']}/wait?timeout=100"), 200)
    dead.forget_reply()
    again = run(served, dead, out)
    assert again["command"]["id"] == first["command"]["id"] and again["session"]["id"] == first["session"]["id"]
    assert run(served, dead, out) == again
    assert out.read_text() == "ran\n"


def test_a_crash_between_opening_and_queueing(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server queues the command in the session that was opened."""
    session = served.session()  # an earlier one, which must not be taken for it
    dead, out = Dead(served, "k"), tmp_path / "out"
    monkeypatch.setattr(served.local.engine, "submit", _crash)
    assert (
        served.admin.post("/runs", json={**dead.body, "env": {"OUT": str(out)}}, headers=keyed("k")).status_code == 500
    )
    monkeypatch.undo()
    dead.forget_reply()
    reply = run(served, dead, out)
    assert reply["session"]["id"] == session + 1
    answered(served.admin.get(f"/commands/{reply['command']['id']}/wait?timeout=100"), 200)
    assert run(served, dead, out)["command"]["id"] == reply["command"]["id"]
    assert out.read_text() == "ran\n"


def test_two_crashes(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first before the command was queued, whose session is closed then; the second after the command of another
    session was: the repetition finds that one, and it ran once."""
    dead, out = Dead(served, "k"), tmp_path / "out"
    monkeypatch.setattr(served.local.engine, "submit", _crash)
    body = {**dead.body, "env": {"OUT": str(out)}}
    assert served.admin.post("/runs", json=body, headers=keyed("k")).status_code == 500
    monkeypatch.undo()
    (first,) = answered(served.admin.get("/sessions"), 200)["items"]
    answered(served.admin.delete(f"/sessions/{first['id']}"), 200)
    dead.forget_reply()
    reply = run(served, dead, out)
    answered(served.admin.get(f"/commands/{reply['command']['id']}/wait"), 200)
    dead.forget_reply()
    assert run(served, dead, out)["command"]["id"] == reply["command"]["id"]
    assert out.read_text() == "ran\n"


@pytest.mark.parametrize("step", ["sessions.by_idempotency_key", "commands.add"])
def test_a_store_that_is_away_after_a_crash(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A repetition that cannot find out what the dead server has done does not make the next one begin anew."""
    dead, out = Dead(served, "k"), tmp_path / "out"
    first = run(served, dead, out)
    answered(served.admin.get(f"/commands/{first['command']['id']}/wait"), 200)
    dead.forget_reply()
    noun, _, verb = step.partition(".")

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError("the store is away")

    monkeypatch.setattr(getattr(served.local.store, noun), verb, away)
    body = {**dead.body, "env": {"OUT": str(out)}}
    assert served.admin.post("/runs", json=body, headers=keyed("k")).status_code in (201, 503)
    monkeypatch.undo()
    assert run(served, dead, out)["command"]["id"] == first["command"]["id"]
    assert out.read_text() == "ran\n"


def _crash(**_: object) -> None:
    raise DeathError


class DeathError(Exception):
    """Stands for the end of the process."""


def test_a_crash_before_anything_was_done(served: Served, tmp_path: Path) -> None:
    """A request that was begun and nothing more is done by the next server, once."""
    dead, out = Dead(served, "k"), tmp_path / "out"
    first = run(served, dead, out)
    command = first["command"]["id"]
    answered(served.admin.get(f"/commands/{command}/wait?timeout=100"), 200)
    session = f"/sessions/{first['session']['id']}"
    eventually(lambda: served.admin.get(session).json()["status"] == "completed")
    dead.forget_reply()
    dead.forget_command(command)
    again = run(served, dead, out)
    assert again["session"]["id"] != first["session"]["id"]
    answered(served.admin.get(f"/commands/{again['command']['id']}/wait?timeout=100"), 200)
    assert out.read_text() == "ran\nran\n"  # the first time is what this test made the server forget


def test_a_crash_after_a_session_was_opened(served: Served, tmp_path: Path) -> None:
    """A repetition of ``POST /sessions`` finds the session that a dead server opened and queues what is missing."""
    dead, out = Dead(served, "k"), tmp_path / "out"
    body = {"repository": "repo", "commit": "HEAD", "commands": [f"echo {word} >> {out}" for word in ("one", "two")]}
    first = answered(served.admin.post("/sessions", json=body, headers=keyed("k")), 201)
    last = commands(served, first["id"])[-1]["id"]
    answered(served.admin.get(f"/commands/{last}/wait?timeout=100"), 200)
    # To the end, and what follows it: a command that is forgotten must not be under way.
    kept = served.local.store.artifacts.in_session
    eventually(lambda: last in {item.command_id for item in kept(first["id"])}, what="all that follows its end")
    assert out.read_text() == "one\ntwo\n"
    dead.forget_reply()
    dead.forget_command(last)
    again = answered(served.admin.post("/sessions", json=body, headers=keyed("k")), 201)
    assert again["id"] == first["id"]
    assert len(answered(served.admin.get("/sessions"), 200)["items"]) == 1
    eventually(lambda: out.read_text() == "one\ntwo\ntwo\n")  # the second is what this test made the server forget


def test_a_session_that_nobody_was_told_of(base: Path, processes: Callable[..., Process]) -> None:
    """A server killed before it answered ``POST /sessions`` leaves a session that its owner sees and can close."""
    remote = small_remote(base / "remote")
    process = processes().started()
    with open_store(f"sqlite:///{base}/data/metadata.db") as store:
        _, secret = store.tokens.create("owner", ["admin"])
        headers = {"Authorization": f"Bearer {secret}"}
        registered = {"name": "repo", "remote_url": str(remote.path)}
        answered(httpx.post(f"{process.url}/repository/init", json=registered, headers=headers, timeout=SECONDS), 201)
        text = json.dumps({"repository": "repo", "commit": "HEAD"})
        with sockets.create_connection(("127.0.0.1", process.port)) as client:
            head = f"POST /sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
            client.sendall((head + text).encode())
            eventually(store.sessions.page, what="the session")
            process.kill()
        process = processes().started()
        with httpx.Client(base_url=process.url, headers=headers, timeout=SECONDS) as owner:
            (session,) = answered(owner.get("/sessions"), 200)["items"]
            answered(owner.delete(f"/sessions/{session['id']}"), 200)
        assert [row.status for row in store.worktrees.page()] == [WorktreeStatus.IDLE]


def test_another_live_server_s_request_is_not_taken(served: Served) -> None:
    """While the process that began it lives, a repetition is a conflict that says so."""
    owner = Owner(served.local.settings.paths.owners_dir)
    try:
        session = served.session()
        body = {"argv": ["true"]}
        path = f"/sessions/{session}/commands"
        answered(served.admin.post(path, json=body, headers=keyed("k")), 201)
        with served.local.store._database.write() as transaction:
            transaction.run("UPDATE keyed_requests SET reply = NULL, owner = ?", (owner.name,))
        assert (
            "in progress" in refused(served.admin.post(path, json=body, headers=keyed("k")), 409, "conflict")["message"]
        )
    finally:
        owner.close()
    answered(served.admin.post(path, json=body, headers=keyed("k")), 201)
    assert len(commands(served, session)) == 1
