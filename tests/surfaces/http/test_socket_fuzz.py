"""Anything at all on a WebSocket: refused or ignored, with a documented code, and the server goes on."""

from __future__ import annotations

import base64
import contextlib
import logging
import random
import socket as sockets
import struct

import pytest

from tests.running import eventually
from tests.surfaces.http.serving import Served, answered

CONNECTIONS = 160
# 1000 end, 1002, 1003, 1007, 1009 of the protocol itself, 1008 refused, 1011 no debugger, 1012 the server leaves.
DOCUMENTED = {1000, 1002, 1003, 1007, 1008, 1009, 1011, 1012}
OPCODES = (0, 1, 2, 8, 9, 10)  # continuation, text, binary, close, ping, pong
QUERIES = ("", "?offset=0", "?offset=-1", "?offset=99999999", "?offset=9e9", "?encoding=base64", "?encoding=x", "?x=1")


@pytest.mark.parametrize("seed", [1])
def test_no_frames_break_the_server(shared: Served, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    """Wild paths, queries, heads and frames: never a 5xx, never another code than the documented, nothing left."""
    chance = random.Random(seed)
    session = shared.session()
    running = shared.submit(session, "sleep", "600")
    ended = shared.run(shared.session(), "sh", "-c", "head -c 8000000 /dev/zero")  # it is still being sent then
    eventually(lambda: shared.admin.get(f"/commands/{running}").json()["status"] == "running")
    paths = [f"/commands/{number}/log" for number in (running, ended, 10**9, "x", "%00")]
    paths += [f"/sessions/{session}/logs", f"/sessions/{session}/debug", "/sessions/0/logs", "/none"]
    codes: set[int] = set()
    with caplog.at_level(logging.ERROR):
        for _ in range(CONNECTIONS):
            path = chance.choice(paths) + chance.choice(QUERIES)
            codes |= _visit(shared, chance, path)

        def come_through() -> bool:
            """To the server's own code; where there is no debugger it depends on who speaks first."""
            codes.update(_visit(shared, chance, f"/sessions/{session}/debug"))
            return {1002, 1008, 1011} <= codes

        eventually(come_through, what="an answer of each kind")
        eventually(lambda: shared.followers == 0, what="the end of the followers")
    assert codes <= DOCUMENTED
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert shared.admin.get("/readyz").status_code == 200
    answered(shared.admin.post(f"/commands/{running}/cancel"), 200)


def _visit(served: Served, chance: random.Random, path: str) -> set[int]:
    """One connection with noise of some kind; returns the codes with which the server closed it."""
    with sockets.create_connection(("127.0.0.1", served.port), timeout=100) as client:
        client.sendall(_head(served, chance, path))
        answer = b""
        while b"\r\n\r\n" not in answer:  # what comes before the upgrade would not be taken for frames
            more = client.recv(1 << 16)
            assert more, "the server closed without an answer"
            answer += more
        head, _, frames = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        assert status < 500, head  # without its Upgrade it is an ordinary request, which may well be answered
        if status != 101:
            return set()
        with contextlib.suppress(OSError):  # it hears no more
            for _ in range(chance.randrange(4)):
                client.sendall(_noise(chance))
            client.shutdown(sockets.SHUT_WR)
            while data := client.recv(1 << 16):
                frames += data
    return _closes(frames)


def _head(served: Served, chance: random.Random, path: str) -> bytes:
    secret = served.admin.headers["Authorization"]
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(chance.randbytes(16)).decode()}",
    ]
    if chance.random() < 0.8:
        lines.append(f"Authorization: {secret}")
    if chance.random() < 0.2:
        lines[chance.randrange(1, len(lines))] = chance.choice(["X: y", "Sec-WebSocket-Version: 99", "Upgrade: tea"])
    return "\r\n".join([*lines, "", ""]).encode()


def _noise(chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 300))
    if kind == 1:  # a promise of more than can ever come
        return bytes([0x82, 0xFF]) + struct.pack(">Q", chance.choice([2**63 - 1, 2**40, 1 << 21])) + b"\0\0\0\0"
    data = chance.choice(
        [b"", b"{}", b"\xff\xfe", b"x" * 126, b"x" * 70_000, struct.pack(">H", chance.randrange(6000))]
    )
    return _frame(chance, chance.choice(OPCODES), data) if kind == 2 else _frame(chance, chance.randrange(256), data)


def _frame(chance: random.Random, opcode: int, data: bytes) -> bytes:
    """A frame, as a client sends it; sometimes without its mask, sometimes a part of a message only."""
    first = opcode | (0x80 if chance.random() < 0.7 else 0)
    masked = 0x80 if chance.random() < 0.8 else 0
    if len(data) < 126:
        head = bytes([first & 0xFF, masked | len(data)])
    elif len(data) < 1 << 16:
        head = bytes([first & 0xFF, masked | 126]) + struct.pack(">H", len(data))
    else:
        head = bytes([first & 0xFF, masked | 127]) + struct.pack(">Q", len(data))
    return head + (b"\0\0\0\0" if masked else b"") + data


def _closes(frames: bytes) -> set[int]:
    """The codes of the closing frames among those that a server sent."""
    found, place = set(), 0
    while place + 2 <= len(frames):
        opcode, length, start = frames[place] & 0x0F, frames[place + 1] & 0x7F, place + 2
        if length == 126:
            length, start = int.from_bytes(frames[start : start + 2], "big"), start + 2
        elif length == 127:
            length, start = int.from_bytes(frames[start : start + 8], "big"), start + 8
        if opcode == 8 and length >= 2:
            found.add(int.from_bytes(frames[start : start + 2], "big"))
        place = start + length
    return found
