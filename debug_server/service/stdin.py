"""Writes to a command's stdin without a thread, because a command may never read.

With a thread for each write, a few commands that do not read could block every thread of the server.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from debug_server.errors import KeeperError
from debug_server.runner.keeper import frames
from debug_server.runner.keeper_connection import KeeperConnection

_SECONDS = 60.0


async def write_to(connection: KeeperConnection, write_id: str, data: bytes, *, close: bool) -> None:
    """Write; returns when the command's pipe has accepted all data, KeeperError if it does not within a minute."""
    keeper = _KeeperConnection(connection.raw_socket())
    try:
        async with asyncio.timeout(_SECONDS):
            reply = await keeper.ask(frames.encode_write(write_id, data), "write", write_id)
            if reply["ok"] and close:
                reply = await keeper.ask(frames.encode_json({"op": "close_stdin", "n": 1}), "n", 1)
    except TimeoutError as error:
        raise KeeperError(
            f"the command did not read for {_SECONDS:g} s: write {write_id!r} is still pending"
        ) from error
    except OSError as error:
        raise KeeperError(f"the connection to the keeper failed: {error.strerror}") from error
    if not reply["ok"]:
        raise KeeperError(f"stdin: {reply['error']}")


class _KeeperConnection:
    """An exclusive connection to a keeper."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._buffer = frames.FrameBuffer()

    async def ask(self, frame: bytes, name: str, value: object) -> dict[str, Any]:
        """Send a frame and wait for its reply: the message whose field ``name`` has this value."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._connection, frame)
        while received := await loop.sock_recv(self._connection, 1 << 16):
            for kind, payload in self._buffer.feed(received):
                message: dict[str, Any] = json.loads(payload) if kind == frames.JSON else {}
                if message.get(name) == value:
                    return message
        raise KeeperError("the command ended before it read its input")
