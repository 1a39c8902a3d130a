"""The control socket of a keeper: accepts clients, reads requests, sends answers and events."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
from collections.abc import Callable

from debug_server.runner.keeper import frames
from debug_server.runner.keeper.linux import start_time, stat_fields
from debug_server.runner.keeper.loop import Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PEER = struct.Struct("3i")
_MAX_CLIENTS = 64
# What decoding and executing a request can raise because of the client.
_CLIENT_ERRORS = (
    frames.FrameError,
    ArithmeticError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
_MAX_BACKLOG = 8 << 20  # a client that does not read is dropped; it can reconnect and lose nothing


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection  # blocking, for the time between commands
        self.buffer = frames.FrameBuffer()
        self.backlog = bytearray()
        self.attached = False  # receives relayed stdout
        self.number = connection.fileno()


class Control:
    """The listening socket and every client, on the keeper's epoll."""

    def __init__(
        self,
        loop: Loop,
        on_message: Callable[[Client, dict[str, Any]], dict[str, Any] | None],
        on_write: Callable[[Client, str, bytes], None],
        fork_server: tuple[int, int | None],
    ) -> None:
        """``fork_server``: its pid and start time; whatever runs below it is a command, and no client."""
        self._loop = loop
        self._on_message = on_message
        self._on_write = on_write
        self._fork_server = fork_server
        self.clients: dict[int, Client] = {}
        self._listener: socket.socket | None = None

    def listen(self, listener: socket.socket) -> None:
        """Accept clients on ``listener``; its directory's mode and the check of the peer's uid keep other users out."""
        self._listener = listener
        self._loop.watch(listener.fileno(), self._accept)

    def _accept(self, _: int, __: int) -> None:
        """Take new clients of our own uid (or root) that are no commands."""
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # no client waits, or no descriptor is free
                return
            if self._may_ask(connection) and len(self.clients) < _MAX_CLIENTS:
                self.add(connection)
            else:
                connection.close()

    def _may_ask(self, connection: socket.socket) -> bool:
        peer, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid not in (os.geteuid(), 0):
            return False
        pid, started = self._fork_server
        return start_time(pid) != started or not _is_below(peer, pid)

    def add(self, connection: socket.socket) -> Client:
        """Serve a connection."""
        client = Client(connection)
        self.clients[client.number] = client
        self._loop.watch(client.number, self._on_ready)
        return client

    def _on_ready(self, fd: int, events: int) -> None:
        client = self.clients[fd]
        if events & select.EPOLLOUT:
            self._flush(client)
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and fd in self.clients:
            self._receive(client)

    def _receive(self, client: Client) -> None:
        try:
            data = client.connection.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(client)
            return
        try:
            for kind, payload in client.buffer.feed(data):
                self._dispatch(client, kind, payload)
        except _CLIENT_ERRORS as error:
            self.send(client, {"ok": False, "error": f"invalid request: {error}"})
            self.drop(client)

    def _dispatch(self, client: Client, kind: int, payload: bytes) -> None:
        if kind == frames.WRITE:
            self._on_write(client, *frames.decode_write(payload))
            return
        message = json.loads(payload)
        reply = self._on_message(client, message)
        if reply is not None:
            self.send(client, {**reply, "n": message.get("n")})

    def send(self, client: Client, message: dict[str, Any]) -> None:
        """Queue one JSON frame."""
        self.send_bytes(client, frames.encode_json(message))

    def broadcast(self, message: dict[str, Any]) -> None:
        """Send to every client."""
        data = frames.encode_json(message)
        for client in list(self.clients.values()):
            self.send_bytes(client, data)

    def send_bytes(self, client: Client, data: bytes) -> None:
        """Send what the socket accepts now and queue the rest."""
        if not client.backlog:
            try:
                data = data[client.connection.send(data, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                pass
            except OSError:
                self.drop(client)
                return
        if data:
            client.backlog += data
            if len(client.backlog) > _MAX_BACKLOG:
                self.drop(client)
                return
            self._loop.change(client.number, select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, client: Client) -> None:
        try:
            sent = client.connection.send(client.backlog, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self.drop(client)
            return
        del client.backlog[:sent]
        if not client.backlog:
            self._loop.change(client.number, select.EPOLLIN)

    def close(self, *, keep: Client) -> None:
        """Disconnect all clients but one, and stop listening."""
        for client in list(self.clients.values()):
            if client is not keep:
                self.drop(client)
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())

    def drop(self, client: Client) -> None:
        """Disconnect a client."""
        if self.clients.pop(client.number, None) is not None:
            self._loop.unwatch(client.number)
            client.connection.close()

    def answer(self, client: Client, message: dict[str, Any]) -> None:
        """Send to a client that may have disconnected."""
        self.answer_bytes(client, frames.encode_json(message))

    def answer_bytes(self, client: Client, data: bytes) -> None:
        """Send encoded frames to a client that may have disconnected."""
        if self.clients.get(client.number) is client:
            self.send_bytes(client, data)

    @property
    def all_sent(self) -> bool:
        """Whether nothing is queued for any client."""
        return not any(client.backlog for client in self.clients.values())


def _is_below(pid: int, ancestor: int) -> bool:
    """Whether a process descends from another one; False for one that has ended, or that we cannot see."""
    while pid > 0 and (fields := stat_fields(pid)) is not None:
        if pid == ancestor:
            return True
        pid = int(fields[1])
    return False
