"""The connection of the server to one keeper."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from debug_server.errors import KeeperError
from debug_server.model import ExitRecord
from debug_server.runner.deferred_signals import await_readable
from debug_server.runner.keeper import frames
from debug_server.runner.keeper.linux import start_time
from debug_server.runner.keeper.rundir import SOCKET
from debug_server.runner.keeper_process import continue_if_stopped

_ANSWER_SECONDS = 30.0  # a keeper answers as soon as it gets a CPU


class KeeperConnection:
    """The connection to one keeper, made at its start or later by its run directory."""

    def __init__(
        self,
        connection: socket.socket,
        pid: int | None = None,
        *,
        on_no_process: Callable[[], object] = lambda: None,
    ) -> None:
        """``on_no_process`` is called while the keeper cannot create the command's process."""
        self._connection = connection
        self._on_no_process = on_no_process
        self._process = None if pid is None else (pid, start_time(pid) or 0)
        self.last_message_at = -math.inf  # monotonic time of the last message
        self._buffer = frames.FrameBuffer()
        self._waiting: deque[dict[str, Any]] = deque()
        self._send_lock = threading.Lock()

    @classmethod
    def connect(cls, run_dir: Path, timeout: float = 5.0) -> KeeperConnection:
        """Connect to a running keeper by its run directory; KeeperError when none listens there."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        directory = -1
        try:
            # Through /proc: a socket's address holds 107 bytes, a run directory's path may be longer.
            directory = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            # A keeper reuses its directory for the next command, under another name.
            if not os.path.samestat(os.fstat(directory), run_dir.stat()):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            connection.close()
            raise KeeperError(f"no keeper answers in {run_dir}: {error.strerror}") from error
        finally:
            if directory >= 0:
                os.close(directory)
        connection.settimeout(None)
        return cls(connection)

    def send(self, message: dict[str, Any]) -> None:
        """Send one request; KeeperError when the keeper is gone."""
        self.send_frame(frames.encode_json(message))

    def send_frame(self, frame: bytes) -> None:
        """Send one encoded frame."""
        try:
            with self._send_lock:
                self._connection.sendall(frame)
        except OSError as error:
            raise KeeperError(f"the connection to the keeper is closed: {error.strerror}") from error

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next message; None when the keeper has closed; TimeoutError after ``timeout``."""
        self._connection.settimeout(timeout)
        while not self._waiting:
            await_readable(self._connection, timeout)
            try:
                received = frames.receive(self._connection, self._buffer)
            except ConnectionError:
                received = None
            if received is None:
                return None
            self.last_message_at = time.monotonic()
            self._waiting.extend(_decode(kind, payload) for kind, payload in received)
        return self._waiting.popleft()

    def wait_for(self, *events: str, timeout: float | None = None) -> dict[str, Any] | None:
        """Skip messages until one of ``events``; None when the keeper closed first."""
        while (message := self.receive(timeout)) is not None:
            if message.get("event") in events:
                return message
            if message.get("event") == "no_process":
                self._on_no_process()
        return None

    def request(self, message: dict[str, Any], timeout: float = _ANSWER_SECONDS) -> dict[str, Any]:
        """Send a request and wait for its answer; only if no other thread reads this connection."""
        self.send({**message, "n": 1})
        while (reply := self._reply(timeout)) is not None:
            if reply.get("n") == 1:
                return reply
        raise KeeperError("the keeper ended before it answered")

    def _reply(self, timeout: float, failure: str = "the keeper did not answer") -> dict[str, Any] | None:
        try:
            return self.receive(timeout)
        except TimeoutError as error:
            raise KeeperError(f"{failure} within {timeout:g} s") from error

    def write_stdin(self, write_id: str, data: bytes, timeout: float = 60.0) -> None:
        """Write to the child's stdin and wait until its pipe has taken it; KeeperError with the reason if it cannot."""
        self.send_frame(frames.encode_write(write_id, data))
        while (reply := self._reply(timeout, "stdin: the command did not take its input")) is not None:
            if reply.get("write") == write_id:
                if not reply["ok"]:
                    raise KeeperError(f"stdin: {reply['error']}")
                return
        raise KeeperError("the command ended before it read its input")

    def wake(self) -> None:
        """Send SIGCONT to the keeper if it is stopped; only connections from the pool know its pid."""
        if self._process is not None:
            continue_if_stopped(*self._process)

    def hang_up(self) -> None:
        """Shut the connection down, so that a ``receive`` in another thread returns."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def raw_socket(self) -> socket.socket:
        """The raw socket, for a caller that reads it itself; call it before anything was received."""
        return self._connection

    def close(self) -> None:
        """Disconnect; the command continues."""
        self._connection.close()

    def __enter__(self) -> KeeperConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _decode(kind: int, payload: bytes) -> dict[str, Any]:
    if kind == frames.OUTPUT:
        offset, data = frames.decode_output(payload)
        return {"event": "output", "offset": offset, "data": data}
    message: dict[str, Any] = json.loads(payload)
    return message


def exit_record(message: dict[str, Any]) -> ExitRecord:
    """The exit record in a keeper's exit event."""
    return ExitRecord.from_json(message["record"])
