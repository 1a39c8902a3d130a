"""As many requests as a server answers, over a few connections and with as little work here as possible."""

from __future__ import annotations

import selectors
import socket
import time

from benchmarks.service.serving import Server

_CONNECTIONS = 8
_LENGTH = b"content-length: "


def rate_of(server: Server, path: str, seconds: float) -> float:
    """Answers per second to ``GET path``; each connection asks again as soon as it has its answer."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(_CONNECTIONS)]
    try:
        size = _answer_size(connections[0], request)
        return _ask(connections, request, size, seconds)
    finally:
        for connection in connections:
            connection.close()


def _ask(connections: list[socket.socket], request: bytes, size: int, seconds: float) -> float:
    got = dict.fromkeys(connections, 0)
    answers = 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            connection.sendall(request)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for key, _ in selector.select(1.0):
                connection = key.data
                got[connection] += len(connection.recv(1 << 16))
                if got[connection] >= size:
                    got[connection] -= size
                    answers += 1
                    connection.sendall(request)
        return answers / (time.perf_counter() - began)


def _answer_size(connection: socket.socket, request: bytes) -> int:
    """Every answer to one request has the same size: the fields that vary have a fixed width."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    if not data.startswith(b"HTTP/1.1 200"):
        raise OSError(f"the server answered {data[:60]!r}")
    head, _, _ = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])
    size = len(head) + 4 + length
    while len(data) < size:
        data += connection.recv(1 << 16)
    return size
