"""Followers that come and go: the same bytes, and nothing left of them."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import random
import socket as sockets
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from debug_server.runner.log_watch import _shared
from tests.running import eventually
from tests.surfaces.http.serving import Served, answered, refused

WRITER = """
import random, sys, time
rng, left = random.Random(7), int(sys.argv[1])
while left > 0:
    piece = rng.randbytes(min(left, rng.choice((10, 1000, 60000))))
    sys.stdout.buffer.write(piece); sys.stdout.buffer.flush()
    left -= len(piece); time.sleep(0.0005)
"""
SIZE = 3 << 20

Follow = Callable[[str, int, dict[str, str]], Iterator[tuple[int, bytes]]]


def follow_bytes(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    with httpx.stream("GET", f"{url}/log", params={"follow": True, "offset": offset}, headers=headers) as response:
        for data in response.iter_raw():
            offset += len(data)
            yield offset, data


def follow_lines(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    params = {"follow": "true", "offset": str(offset), "encoding": "base64"}
    with httpx.stream("GET", f"{url}/log.ndjson", params=params, headers=headers) as response:
        for line in response.iter_lines():
            record = json.loads(line)
            yield record["next_offset"], base64.b64decode(record["data"])


def follow_sse(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    headers = {**headers, "Last-Event-ID": str(offset)}
    with httpx.stream("GET", f"{url}/log/events", params={"encoding": "base64"}, headers=headers) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and "next_offset" in line:
                record = json.loads(line.removeprefix("data: "))
                yield record["next_offset"], base64.b64decode(record["data"])


def follow_socket(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    from websockets.sync.client import connect

    address = f"{url.replace('http', 'ws', 1)}/log?encoding=base64&offset={offset}"
    # What it has not read stands in the way of the peer's goodbye: it does not wait for that.
    with connect(address, additional_headers=headers, close_timeout=0.05) as socket:
        for message in socket:
            record = json.loads(message)
            yield record["next_offset"], base64.b64decode(record["data"])


TRANSPORTS: dict[str, Follow] = {
    "bytes": follow_bytes,
    "ndjson": follow_lines,
    "sse": follow_sse,
    "websocket": follow_socket,
}


def descriptors() -> int:
    """Open connections and logs of this process, which holds the server."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return len([link for link in links if link.startswith("socket:") or "/logs/" in link])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_random_disconnects(shared: Served, transport: str) -> None:
    """A follower that is cut off at random and goes on by offset has every byte once, and leaves nothing behind."""
    rng = random.Random(transport)
    command = shared.submit(shared.session(), sys.executable, "-c", WRITER, str(SIZE))
    headers = {"Authorization": shared.admin.headers["Authorization"]}
    got, offset, cuts = bytearray(), 0, 0
    while offset < SIZE:
        patience = rng.randrange(1, SIZE // 12)
        start = offset
        for position, data in TRANSPORTS[transport](f"{shared.url}/commands/{command}", offset, headers):
            got += data
            offset = position
            if offset - start > patience:
                cuts += 1
                break
    assert cuts >= 5
    assert bytes(got) == shared.admin.get(f"/commands/{command}/log").content
    eventually(lambda: shared.followers == 0, what="the end of the followers")
    eventually(lambda: not [target for target in _shared()._targets.values() if target.watches], what="no watches")


def test_silent_clients_that_vanish(shared: Served) -> None:
    """Followers of a silent command that drop their connection are gone at once, with their descriptors."""
    command = shared.submit(shared.session(), "sleep", "60")
    head = f"Host: x\r\nAuthorization: {shared.admin.headers['Authorization']}\r\n\r\n"
    eventually(lambda: shared.admin.get(f"/commands/{command}").json()["status"] == "running")
    before = descriptors()
    paths = [f"/commands/{command}/log?follow=1", f"/commands/{command}/log.ndjson?follow=1", "/events/stream?after=0"]
    paths += [f"/commands/{command}/log/events", "/sessions/1/logs?follow=1"]
    clients = []
    for path in paths * 4:
        client = sockets.create_connection(("127.0.0.1", shared.port))
        client.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode())
        clients.append(client)
    eventually(lambda: shared.followers >= 12, what="followers")
    for client in clients:
        client.close()
    eventually(lambda: shared.followers == 0, what="the end of the followers")
    eventually(lambda: descriptors() <= before + 2, what="closed descriptors")
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def test_a_slow_client_slows_only_itself(shared: Served) -> None:
    """One that does not read neither holds the command nor another follower, and the server does not buffer for it."""
    session = shared.session()
    command = shared.submit(session, "sh", "-c", "head -c 40000000 /dev/zero | tr '\\0' x")
    with shared.socket(f"/commands/{command}/log") as slow:
        ended = answered(shared.admin.get(f"/commands/{command}/wait", params={"timeout": 60}), 200)
        assert ended["exit_reason"] == "exited"
        assert len(shared.admin.get(f"/commands/{command}/log", params={"follow": True}).content) == 40_000_000
        assert shared.followers == 1  # it is still at its beginning
        assert sum(len(json.loads(message)["text"]) for message in slow) == 40_000_000


def test_no_more_followers_than_there_is_room_for(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the server has room for is refused in the documented way, and those who were there go on."""
    command = shared.submit(shared.session(), "sh", "-c", "read line; echo $line", stdin=True)
    eventually(lambda: shared.admin.get(f"/commands/{command}").json()["status"] == "running")
    monkeypatch.setattr(shared.local.service.audience, "most", 2)
    address = f"/commands/{command}/log"
    with shared.socket(address) as first, shared.socket(address) as second:
        eventually(lambda: shared.followers == 2, what="two followers")
        for path in (f"{address}?follow=1", f"{address}.ndjson?follow=1", f"{address}/events", "/events/stream"):
            refusal = shared.admin.get(path)
            assert refused(refusal, 429, "too_many_followers")["retryable"] is True
            assert int(refusal.headers["Retry-After"]) >= 1
        with pytest.raises(ConnectionClosed) as closed, shared.socket(address) as third:
            third.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason.partition(":")[0]) == (1008, "too_many_followers")
        body = {"write_id": "1", "data": "hello\n"}
        answered(shared.admin.post(f"/commands/{command}/stdin", json=body), 200)
        assert [json.loads(str(item.recv(timeout=10)))["text"] for item in (first, second)] == ["hello\n"] * 2
    eventually(lambda: shared.local.service.audience.size == 0, what="an empty house")


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_a_token_that_is_no_longer_good_follows_no_longer(shared: Served, end: str) -> None:
    """What is being followed with a token is cut off when that is revoked or expires, and going on is refused."""
    wanted = {"name": "short", "scopes": ["admin"], "expires_in": 3 if end == "expired" else 3600}
    made = answered(shared.admin.post("/auth/tokens", json=wanted), 201)
    command = shared.submit(shared.session(), "sh", "-c", "echo up; sleep 600")
    headers = {"Authorization": f"Bearer {made['token']}"}
    with (
        httpx.Client(base_url=shared.url, headers=headers, timeout=30) as client,
        shared.socket(f"/commands/{command}/log", client) as socket,
    ):
        with client.stream("GET", f"/commands/{command}/log?follow=1") as response:
            pieces = response.iter_raw()
            assert (next(pieces), json.loads(str(socket.recv(timeout=10)))["text"]) == (b"up\n", "up\n")
            if end == "revoked":
                answered(shared.admin.delete(f"/auth/tokens/{made['id']}"), 200)
            with pytest.raises(httpx.RemoteProtocolError):
                next(pieces)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert closed.value.rcvd.reason == "unauthorized: the token has expired or was revoked"
        refused(client.get(f"/commands/{command}/log"), 401, "unauthorized")
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def test_a_client_that_leaves_amid_its_request_is_no_failure(shared: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A body that is broken off, a follower that goes while much is sent to it: nothing for the operator to look at."""
    secret = shared.admin.headers["Authorization"]
    loud = shared.run(shared.session(), "sh", "-c", "head -c 8000000 /dev/zero")
    paths = ("/sessions", "/runs")
    with caplog.at_level(logging.INFO, "debug_server.api"):  # whatever an earlier test has configured
        for path in paths:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {secret}\r\nContent-Length: 100000\r\n\r\n{{"
            with sockets.create_connection(("127.0.0.1", shared.port), timeout=10) as client:
                client.sendall(head.encode())
        with shared.socket(f"/commands/{loud}/log") as follower:
            follower.recv(timeout=10)
        told = {f"/commands/{loud}/log", *paths}
        eventually(lambda: told <= set(_audited(caplog)), what="a record of each")
    assert {status for path, status in _audited(caplog).items() if path in paths} == {499}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def _audited(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    found = (record for record in caplog.records if record.getMessage() == "api.request")
    return {record.__dict__["path"]: record.__dict__["status"] for record in found}


def test_garbage_on_a_websocket(shared: Served) -> None:
    """Frames that are no frames, or that nobody asked for, end or change nothing but their own connection."""
    command = shared.submit(shared.session(), "sleep", "60")
    secret = shared.admin.headers["Authorization"]
    request = (
        f"GET /commands/{command}/log HTTP/1.1\r\nHost: x\r\nAuthorization: {secret}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    for garbage in (b"\xff" * 100, b"\x81\x05hello", os.urandom(4096), b"\x01\x80\0\0\0\0"):
        client = sockets.create_connection(("127.0.0.1", shared.port), timeout=10)
        client.sendall(request.encode())
        assert b"101" in client.recv(4096)
        client.sendall(garbage)
        client.close()
    with shared.socket(f"/commands/{command}/log") as polite:
        polite.send("what")
        polite.send(b"ever")
        with pytest.raises(ConnectionClosed):
            polite.send("x" * (2 << 20))
            polite.recv(timeout=10)
    eventually(lambda: shared.followers == 0, what="the end of the followers")
    assert shared.admin.get("/readyz").status_code == 200
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)
