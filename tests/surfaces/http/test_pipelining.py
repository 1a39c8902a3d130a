"""Requests that are sent before the last one is answered: few of them are taken, however many come."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from debug_server.surfaces.http.protocol import MAX_WAITING
from tests.surfaces.http.serving import SECONDS, Process

Processes = Callable[..., Process]
REQUEST = b"GET /x HTTP/1.1\r\n\r\n"
CONNECTIONS, BURST = 40, 1 << 20
GROWTH_KIB = 24 << 10  # the pieces that were read last, and the allocator's own


def resident_kib(pid: int) -> int:
    """The memory that the process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


def sent_until_full(connections: list[socket.socket], data: bytes) -> int:
    """Send ``data`` over each connection, as far as the server takes it; reads nothing."""
    left = dict.fromkeys(connections, data)
    for connection in connections:
        connection.setblocking(False)
    while left:
        _, writable, _ = select.select([], list(left), [], 1.0)
        if not writable:
            break
        for connection in writable:
            try:
                left[connection] = left[connection][connection.send(left[connection]) :]
            except OSError:  # closed
                left[connection] = b""
            if not left[connection]:
                del left[connection]
    return len(connections) * len(data) - sum(map(len, left.values()))


@pytest.mark.usefixtures("nothing_left")
def test_pipelined_requests_take_no_memory(processes: Processes, base: Path) -> None:
    """40 connections that send 40 MB of requests and read no answer: the memory stays, others are served, SIGTERM
    ends the server."""
    process = processes().started()
    with httpx.Client(base_url=process.url, timeout=SECONDS) as client, contextlib.ExitStack() as stack:
        assert client.get("/health").status_code == 200
        before = resident_kib(process.pid)
        address = ("127.0.0.1", process.port)
        crowd = [stack.enter_context(socket.create_connection(address)) for _ in range(CONNECTIONS)]
        assert sent_until_full(crowd, REQUEST * (BURST // len(REQUEST)))
        for _ in range(20):
            assert client.get("/health").status_code == 200
        assert resident_kib(process.pid) - before < GROWTH_KIB
        process.terminate()
        assert process.output()[0] == 0


def test_what_is_taken_is_answered_in_order(processes: Processes) -> None:
    """A few requests that are sent at once are answered, each once, in order; of many the first, and then the
    connection is closed."""
    process = processes().started()
    for count in (5, 2000):
        with socket.create_connection(("127.0.0.1", process.port), timeout=SECONDS) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(b"".join(b"GET /n%d HTTP/1.1\r\nHost: x\r\n\r\n" % item for item in range(count)))
            received = b""
            with contextlib.suppress(OSError):
                while received.count(b"there is no path") < count and (data := connection.recv(1 << 16)):
                    received += data
        answered = [b"'/n%d'" % item in received for item in range(count)]
        assert sum(answered) == received.count(b"there is no path")
        assert answered == sorted(answered, reverse=True), "the first of them"
        assert all(answered) if count == 5 else sum(answered) <= MAX_WAITING + 1
