"""Connections that say nothing, too little or too slowly: they are ended, and never keep a client out."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from debug_server.service import LOCAL
from debug_server.service.audit import Record
from debug_server.surfaces.http.connections import Connection, ConnectionLimits, Connections, Phase
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Process, answered, open_local
from tests.surfaces.silent_connections import silent_connections
from tests.worktrees.places import small_remote

Processes = Callable[..., Process]
FILES = 256
LOG_BYTES = 200_000
SILENT = b""
HALF_HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Half: "
HALF_BODY = b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture
def secret(base: Path) -> str:
    """An admin's token, made before the server starts."""
    with open_local(base) as local:
        local.store.repositories.create("repo", str(small_remote(base / "remote").path))
        return local.store.tokens.create("tester", ["admin"])[1]


def started(processes: Processes, base: Path, *, files: int = FILES, **settings: float) -> Process:
    """A server that may open so many files and not one more."""
    options = {"open_files": [files, files], "log": str(base / "server.log"), "server": settings}
    return processes(options=json.dumps(options)).started()


def client_of(process: Process, secret: str) -> httpx.Client:
    return httpx.Client(base_url=process.url, headers={"Authorization": f"Bearer {secret}"}, timeout=SECONDS)


@pytest.mark.usefixtures("nothing_left")
def test_a_crowd_keeps_nobody_out(processes: Processes, base: Path, secret: str) -> None:
    """With 256 files, 400 connections that send nothing, half a head or half a body stop neither requests over new
    connections nor commands, and the log stays small."""
    process = started(processes, base)
    run = {"repository": "repo", "commit": "HEAD", "argv": ["true"]}
    with client_of(process, secret) as client:
        for first in (SILENT, HALF_HEAD, HALF_BODY):
            with silent_connections(process.port, 400, first):
                for _ in range(10):
                    assert answered(client.get("/whoami"), 200)["name"] == "tester"
                    with client_of(process, secret) as fresh:
                        answered(fresh.get("/whoami"), 200)
                reply = answered(client.post("/runs", json=run, params={"wait": SECONDS}), 201)
                assert reply["command"]["exit_code"] == 0
    assert (base / "server.log").stat().st_size < LOG_BYTES
    process.terminate()
    assert process.output()[0] == 0


@pytest.mark.usefixtures("nothing_left")
def test_commands_keep_the_limit_of_files(processes: Processes, base: Path, secret: str) -> None:
    """The server raises its own limit of open files; a command has the one that the server was started with."""
    options = {"open_files": [200, 300]}
    process = processes(options=json.dumps(options)).started()
    assert "Max open files            300                  300" in Path(f"/proc/{process.pid}/limits").read_text()
    with client_of(process, secret) as client:
        run = {"repository": "repo", "commit": "HEAD", "argv": ["sh", "-c", "ulimit -Sn; ulimit -Hn"]}
        command = answered(client.post("/runs", json=run, params={"wait": SECONDS}), 201)["command"]
        assert client.get(f"/commands/{command['id']}/log").text == "200\n300\n"
    process.terminate()
    assert process.output()[0] == 0


def answer(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(4096):
            received += data
    return received


def dripped(connection: socket.socket, first: bytes) -> bytes:
    """What the server says to a client that sends a byte every now and then."""
    connection.sendall(first)
    ended = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        return answer(connection)
    finally:
        ended.set()
        thread.join()


def test_slow_requests_are_ended(processes: Processes, base: Path, secret: str) -> None:
    """A silent connection is closed; a head or a body that stalls, or arrives a byte at a time, is answered 408; a
    kept connection is closed after a while, also one that sends empty lines; a head of more than 64 KiB is refused."""
    process = started(processes, base, head_timeout=0.5, body_timeout=0.5, keep_alive=0.5)
    known = HALF_BODY.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer " + secret.encode())
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

    def connected() -> socket.socket:
        return socket.create_connection(("127.0.0.1", process.port), timeout=SECONDS)

    def said(first: bytes, then: bytes | None = None) -> bytes:
        """What the server says to ``first``; nothing where this test was kept waiting before it could send it."""
        with connected() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(first)
            return answer(connection) if then is None else dripped(connection, then)
        return b""

    with connected() as silent:
        assert answer(silent) == b""
    for slow in (HALF_HEAD, known):
        assert eventually(lambda: said(slow)).startswith(b"HTTP/1.1 408 ")  # noqa: B023
        with connected() as dripping:
            received = dripped(dripping, slow)
            assert received.startswith(b"HTTP/1.1 408 ") or not received  # or the reset came first
    # Answered at once, and then the rest of its body is not waited for.
    assert eventually(lambda: said(HALF_BODY, b"x")).startswith(b"HTTP/1.1 401 ")
    for then in (None, b"\r\n"):
        assert eventually(lambda: said(whole, then)).startswith(b"HTTP/1.1 200 ")  # noqa: B023

    def endless() -> bytes:
        with connected() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\n" + b"X-More: aaaaaaaaaaaaaaaaaaaaaa\r\n" * 4000)
            return answer(connection)

    while (received := endless()).startswith(b"HTTP/1.1 408 "):  # this test was kept waiting amid the head
        pass
    assert received.startswith(b"HTTP/1.1 431 ") or not received
    eventually(lambda: "slow_head" in (base / "server.log").read_text(), what="a line about slow clients")
    who_am_i = f"GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n\r\n"
    assert eventually(lambda: said(who_am_i.encode())).startswith(b"HTTP/1.1 200 ")


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """Connections of a registry, and which of them were cut."""

    def __init__(self, most: int) -> None:
        self.clock = Clock()
        self.all = Connections(ConnectionLimits(max_connections=most), clock=self.clock)
        self.cut: list[Connection] = []

    def connected(self, phase: Phase = Phase.HEAD, *, known: bool = False) -> Connection:
        """One more, in a phase."""
        self.clock.now += 1
        found = self.all.admit()
        assert found is not None
        found.drop = lambda: self.cut.append(found)
        found.enter(phase)
        if known:
            found.record = Record(method="GET", path="/", caller=LOCAL)
        return found


def test_who_makes_room() -> None:
    """The order: the oldest idle connection without a token, the oldest idle one, one without a token that is served
    for long; one with a token that is served never: then the new one is refused."""
    seen = Seen(most=4)
    served = seen.connected(Phase.SERVING, known=True)
    kept = seen.connected(Phase.IDLE, known=True)
    unknown = seen.connected(Phase.SERVING)
    silent = seen.connected()
    for victim in (silent, kept, unknown):
        seen.connected(Phase.SERVING, known=True)
        assert seen.cut.pop() is victim
    assert seen.all.admit() is None and len(seen.all) == 4
    served.mark_closed()
    assert seen.all.admit() is not None


def test_unidentified_callers_that_take_no_answer() -> None:
    """Of those that are served for long, the oldest beyond 64 are cut; no known caller, and none that waits."""
    seen = Seen(most=1000)
    held = [seen.connected(Phase.SERVING) for _ in range(70)]
    for phase in (Phase.TURN, Phase.HEAD, Phase.IDLE):
        seen.connected(phase)
    for _ in range(70):
        seen.connected(Phase.SERVING, known=True)
    seen.all.sweep()
    assert seen.cut == held[:6]


def test_a_phase_begins_anew() -> None:
    """Each request has its own time, and a body that flows is not late however long it is."""
    seen = Seen(most=4)
    connection = seen.connected()
    ended: list[float] = []

    def end() -> bool:
        ended.append(seen.clock.now)
        return True

    connection.end = end
    for phase in (Phase.SERVING, Phase.IDLE, Phase.HEAD, Phase.BODY):
        seen.clock.now += 15
        connection.enter(phase)
        seen.all.sweep()
    for _ in range(100):
        seen.clock.now += 20
        connection.received(30_000)
        seen.all.sweep()
    assert not ended
    seen.clock.now += 31
    seen.all.sweep()
    assert ended
