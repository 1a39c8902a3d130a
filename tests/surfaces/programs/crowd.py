"""A crowd of unidentified: connections of another user that send many requests; prints what came of it as JSON.

Takes the user's number, the port, the number of connections and a token on the command line. It becomes that user
before its first socket, says "ready" when everything is sent, and waits for a line on stdin. Then it asks once more,
with the token.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - loaded on demand otherwise
import json
import os
import socket
import sys

SECONDS = 100
DEPTH = 8


def connected(port: int) -> socket.socket:
    """One more connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def request(header: str = "") -> bytes:
    """A request of the document, which is the longest answer that anybody gets."""
    return f"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode()


def has_answer(connection: socket.socket) -> bool:
    """Whether anything came so far."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return False


def main(uid: int, port: int, count: int, token: str) -> None:
    """Send, wait, report."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    crowd = [connected(port) for _ in range(count)]
    for connection in crowd:
        connection.sendall(request() * DEPTH)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    with connected(port) as holder:
        holder.sendall(request(f"Authorization: Bearer {token}\r\n"))
        first = holder.recv(12).decode()
    print(json.dumps({"holder": first, "strangers": sum(map(has_answer, crowd))}))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
