"""Connections that send something, or nothing, and then are silent."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

SECONDS = 100.0


@contextlib.contextmanager
def silent_connections(port: int, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """``count`` of them, each of which has sent ``first``, for the block."""
    found: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)))
            with contextlib.suppress(OSError):  # it was closed already
                found[-1].sendall(first)
        yield found
