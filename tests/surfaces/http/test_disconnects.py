"""OpenStreams that come and go: the same bytes, and nothing left of them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import random
import socket as sockets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected
from websockets.exceptions import ConnectionClosed

from debug_server.runner.log_watch import _shared
from debug_server.surfaces.http.sockets import guarded_socket
from tests.running import eventually
from tests.surfaces.http.serving import SECONDS, Served, answered, refused

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
    params = {"follow": True, "offset": offset}
    with httpx.stream("GET", f"{url}/log", params=params, headers=headers, timeout=SECONDS) as response:
        for data in response.iter_raw():
            offset += len(data)
            yield offset, data


def follow_lines(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    params = {"follow": "true", "offset": str(offset), "encoding": "base64"}
    with httpx.stream("GET", f"{url}/log.ndjson", params=params, headers=headers, timeout=SECONDS) as response:
        for line in response.iter_lines():
            record = json.loads(line)
            yield record["next_offset"], base64.b64decode(record["data"])


def follow_sse(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    headers = {**headers, "Last-Event-ID": str(offset)}
    params = {"encoding": "base64"}
    with httpx.stream("GET", f"{url}/log/events", params=params, headers=headers, timeout=SECONDS) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and "next_offset" in line:
                record = json.loads(line.removeprefix("data: "))
                yield record["next_offset"], base64.b64decode(record["data"])


def follow_socket(url: str, offset: int, headers: dict[str, str]) -> Iterator[tuple[int, bytes]]:
    from websockets.sync.client import connect

    address = f"{url.replace('http', 'ws', 1)}/log?encoding=base64&offset={offset}"
    # What it has not read stands in the way of the peer's goodbye: it does not wait for that.
    with connect(address, additional_headers=headers, open_timeout=SECONDS, close_timeout=0.05) as socket:
        for message in socket:
            record = json.loads(message)
            yield record["next_offset"], base64.b64decode(record["data"])


TRANSPORTS: dict[str, Follow] = {
    "bytes": follow_bytes,
    "ndjson": follow_lines,
    "sse": follow_sse,
    "websocket": follow_socket,
}


def descriptors(port: int) -> int:
    """Open connections with the server, of both ends, and logs: this process holds the server."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    ours = {f"socket:[{row[9]}]" for row in rows if f"{port:04X}" in (row[1][-4:], row[2][-4:])}
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return len([link for link in links if link in ours or "/logs/" in link])


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
    # The server's thread changes the table while we look.
    eventually(lambda: not any(target.watches for target in list(_shared()._targets.values())), what="no watches")


def test_silent_clients_that_vanish(shared: Served) -> None:
    """OpenStreams of a silent command that drop their connection are gone at once, with their descriptors."""
    command = shared.submit(shared.session(), "sleep", "600")
    head = f"Host: x\r\nAuthorization: {shared.admin.headers['Authorization']}\r\n\r\n"
    eventually(lambda: shared.admin.get(f"/commands/{command}").json()["status"] == "running")
    before = descriptors(shared.port)
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
    eventually(lambda: descriptors(shared.port) <= before + 2, what="closed descriptors")
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def test_a_slow_client_slows_only_itself(shared: Served) -> None:
    """One that does not read neither holds the command nor another follower, and the server does not buffer for it."""
    session = shared.session()
    command = shared.submit(session, "sh", "-c", "head -c 40000000 /dev/zero | tr '\\0' x")
    with shared.socket(f"/commands/{command}/log") as slow:
        ended = answered(shared.admin.get(f"/commands/{command}/wait", params={"timeout": SECONDS}), 200)
        assert ended["exit_reason"] == "exited"
        assert len(shared.admin.get(f"/commands/{command}/log", params={"follow": True}).content) == 40_000_000
        eventually(lambda: shared.followers == 1, what="the slow one alone, still at its beginning")
        assert sum(len(json.loads(message)["text"]) for message in slow) == 40_000_000


def test_no_more_followers_than_there_is_room_for(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than the server has room for is refused in the documented way, and those who were there go on."""
    command = shared.submit(shared.session(), "sh", "-c", "read line; echo $line", stdin=True)
    eventually(lambda: shared.admin.get(f"/commands/{command}").json()["status"] == "running")
    eventually(lambda: shared.local.service.followers.size == 0, what="the end of earlier followers")
    monkeypatch.setattr(shared.local.service.followers, "limit", 2)
    address = f"/commands/{command}/log"
    with shared.socket(address) as first, shared.socket(address) as second:
        eventually(lambda: shared.followers == 2, what="two followers")
        for path in (f"{address}?follow=1", f"{address}.ndjson?follow=1", f"{address}/events", "/events/stream"):
            refusal = shared.admin.get(path)
            assert refused(refusal, 429, "too_many_followers")["retryable"] is True
            assert int(refusal.headers["Retry-After"]) >= 1
        with pytest.raises(ConnectionClosed) as closed, shared.socket(address) as third:
            third.recv(timeout=SECONDS)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason.partition(":")[0]) == (1008, "too_many_followers")
        body = {"write_id": "1", "data": "hello\n"}
        answered(shared.admin.post(f"/commands/{command}/stdin", json=body), 200)
        assert [json.loads(str(item.recv(timeout=SECONDS)))["text"] for item in (first, second)] == ["hello\n"] * 2
    eventually(lambda: shared.local.service.followers.size == 0, what="no followers")


@pytest.mark.parametrize("end", ["revoked", "revoked by another process", "expired"])
def test_a_token_that_is_no_longer_good_follows_no_longer(shared: Served, end: str) -> None:
    """What is being followed with a token is cut off when that is revoked or expires, and going on is refused."""
    command = shared.submit(shared.session(), "sh", "-c", "echo up; sleep 600")
    eventually(lambda: shared.admin.get(f"/commands/{command}/log").content == b"up\n", what="something to follow")
    # A token whose time is over before it is used would show nothing: then the next one lasts longer.
    lives = (2, 8, 32) if end == "expired" else (3600,)
    assert any(_cut_off_by_its_end(shared, command, seconds, end) for seconds in lives)
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def _cut_off_by_its_end(shared: Served, command: int, seconds: int, end: str) -> bool:
    """Follow with a new token over its end; False when that came before both followers had heard something."""
    began = time.monotonic()
    wanted = {"name": "short", "scopes": ["admin"], "expires_in": seconds}
    made = answered(shared.admin.post("/auth/tokens", json=wanted), 201)
    headers = {"Authorization": f"Bearer {made['token']}"}
    with (
        httpx.Client(base_url=shared.url, headers=headers, timeout=SECONDS) as client,
        shared.socket(f"/commands/{command}/log", client) as socket,
        client.stream("GET", f"/commands/{command}/log?follow=1") as response,
    ):
        pieces = response.iter_raw()
        try:
            heard = next(pieces), json.loads(str(socket.recv(timeout=SECONDS)))["text"]
        except (httpx.RemoteProtocolError, ConnectionClosed):
            assert time.monotonic() - began >= seconds
            return False
        if response.is_error and time.monotonic() - began >= seconds:
            return False
        assert heard == (b"up\n", "up\n")
        if end == "revoked":
            answered(shared.admin.delete(f"/auth/tokens/{made['id']}"), 200)
        elif end != "expired":
            shared.local.store.tokens.revoke(made["id"])
        with pytest.raises(httpx.RemoteProtocolError):
            next(pieces)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=SECONDS)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert closed.value.rcvd.reason == "unauthorized: the token has expired or was revoked"
        refused(client.get(f"/commands/{command}/log"), 401, "unauthorized")
    return True


def test_a_client_that_leaves_amid_its_request_is_no_failure(shared: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A body that is broken off, a follower that goes while much is sent to it: nothing for the operator to look at."""
    secret = shared.admin.headers["Authorization"]
    loud = shared.run(shared.session(), "sh", "-c", "head -c 8000000 /dev/zero")
    paths = ("/sessions", "/runs")
    with caplog.at_level(logging.INFO, "debug_server.api"):  # whatever an earlier test has configured
        for path in paths:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {secret}\r\nContent-Length: 100000\r\n\r\n{{"
            with sockets.create_connection(("127.0.0.1", shared.port), timeout=SECONDS) as client:
                client.sendall(head.encode())
        with shared.socket(f"/commands/{loud}/log", close_timeout=0.1) as follower:
            follower.recv(timeout=SECONDS)
        told = {f"/commands/{loud}/log", *paths}
        eventually(lambda: told <= set(_audited(caplog)), what="a record of each")
    assert {status for path, status in _audited(caplog).items() if path in paths} == {499}
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def _audited(caplog: pytest.LogCaptureFixture) -> dict[str, int]:
    found = (record for record in caplog.records if record.getMessage() == "api.request")
    return {record.__dict__["path"]: record.__dict__["status"] for record in found}


def test_garbage_on_a_websocket(shared: Served) -> None:
    """Frames that are no frames, or that nobody asked for, end or change nothing but their own connection."""
    command = shared.submit(shared.session(), "sleep", "600")
    secret = shared.admin.headers["Authorization"]
    request = (
        f"GET /commands/{command}/log HTTP/1.1\r\nHost: x\r\nAuthorization: {secret}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    for garbage in (b"\xff" * 100, b"\x81\x05hello", random.Random(7).randbytes(4096), b"\x01\x80\0\0\0\0"):
        client = sockets.create_connection(("127.0.0.1", shared.port), timeout=SECONDS)
        client.sendall(request.encode())
        assert b"101" in client.recv(4096)
        client.sendall(garbage)
        client.close()
    with shared.socket(f"/commands/{command}/log") as polite:
        polite.send("what")
        polite.send(b"ever")
        with pytest.raises(ConnectionClosed):
            polite.send("x" * (2 << 20))
            polite.recv(timeout=SECONDS)
    eventually(lambda: shared.followers == 0, what="the end of the followers")
    assert shared.admin.get("/readyz").status_code == 200
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def test_waiting_ends_with_the_token(shared: Served) -> None:
    """A pending wait is answered 401 soon after its token is revoked."""
    command = shared.submit(shared.session(), "sleep", "600")
    made = answered(shared.admin.post("/auth/tokens", json={"name": "short", "scopes": ["admin"]}), 201)
    headers = {"Authorization": f"Bearer {made['token']}"}
    with httpx.Client(base_url=shared.url, headers=headers, timeout=SECONDS) as client, ThreadPoolExecutor() as threads:
        pending = threads.submit(client.get, f"/commands/{command}/wait", params={"timeout": 600})
        eventually(lambda: shared.local.service.followers._waiting, what="somebody who waits")
        answered(shared.admin.delete(f"/auth/tokens/{made['id']}"), 200)
        refused(pending.result(SECONDS), 401, "unauthorized")
    eventually(lambda: not shared.followers, what="the end of the followers")
    answered(shared.admin.post(f"/commands/{command}/cancel"), 200)


def test_a_web_socket_that_is_gone_before_it_is_accepted() -> None:
    """That is a client that left, not a failure of the server."""

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        raise ClientDisconnected

    async def endpoint(socket: WebSocket) -> None:
        raise AssertionError("it is not accepted")

    socket = WebSocket({"type": "websocket", "path": "/", "headers": []}, receive, send)

    async def guarded(socket: WebSocket) -> None:
        await guarded_socket(endpoint)(socket)

    with pytest.raises(WebSocketDisconnect):
        asyncio.run(guarded(socket))
