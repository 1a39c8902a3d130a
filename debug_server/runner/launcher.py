"""The server's side of keepers: the fork server, a stock of spares, and the connection to one keeper."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any

import debug_server
from debug_server.errors import KeeperError, ResourcesExhaustedError
from debug_server.model import ExitRecord
from debug_server.runner.interrupts import await_readable
from debug_server.runner.keeper import frames
from debug_server.runner.keeper.forkserver import NO_KEEPER
from debug_server.runner.keeper.linux import start_time
from debug_server.runner.keeper.rundir import SOCKET
from debug_server.runner.keeper_process import is_stopped, state_of, wake
from debug_server.runner.limits import Capabilities
from debug_server.runner.open_files import limit_of_commands

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[3]); from debug_server.runner.keeper.forkserver import main; "
    "main(int(sys.argv[1]), sys.argv[2], int(sys.argv[4]))"
)
_START_SECONDS = 20.0
_SPARE_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.2  # where no process could be created
_STOPPED_SECONDS = 10.0  # a fork server that is stopped again and again is replaced
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 30.0  # it answers at once, as soon as it gets a processor


class KeeperConnection:
    """A conversation with one keeper: the one that started it, or one that found it later."""

    def __init__(self, connection: socket.socket, pid: int | None = None) -> None:
        self._connection = connection
        self._process = None if pid is None else (pid, start_time(pid) or 0)
        self.heard = -math.inf  # when it last said something, by the monotonic clock
        self._buffer = frames.FrameBuffer()
        self._waiting: deque[dict[str, Any]] = deque()
        self._send_lock = threading.Lock()

    @classmethod
    def connect(cls, run_dir: Path, timeout: float = 5.0) -> KeeperConnection:
        """Find a running keeper by its directory; KeeperError when nobody listens there."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        directory = -1
        try:
            # Through /proc: a socket's address holds 107 bytes, a run directory's path may be longer.
            directory = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            # Keepers serve one command after another in the same directory, under another name.
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
        """One request; KeeperError when the keeper is gone."""
        self.send_frame(frames.encode_json(message))

    def send_frame(self, frame: bytes) -> None:
        """One encoded frame."""
        try:
            with self._send_lock:
                self._connection.sendall(frame)
        except OSError as error:
            raise KeeperError(f"the keeper does not listen any more: {error.strerror}") from error

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
            self.heard = time.monotonic()
            self._waiting.extend(_decode(kind, payload) for kind, payload in received)
        return self._waiting.popleft()

    def wait_for(self, *events: str, timeout: float | None = None) -> dict[str, Any] | None:
        """Skip messages until one of ``events``; None when the keeper closed first."""
        while (message := self.receive(timeout)) is not None:
            if message.get("event") in events:
                return message
        return None

    def request(self, message: dict[str, Any], timeout: float = _ANSWER_SECONDS) -> dict[str, Any]:
        """Send and wait for the answer to it; only for a connection nobody else reads."""
        self.send({**message, "n": 1})
        while (reply := self._reply(timeout)) is not None:
            if reply.get("n") == 1:
                return reply
        raise KeeperError("the keeper went away before it answered")

    def _reply(self, timeout: float, failure: str = "the keeper did not answer") -> dict[str, Any] | None:
        try:
            return self.receive(timeout)
        except TimeoutError as error:
            raise KeeperError(f"{failure} within {timeout:g} s") from error

    def write_stdin(self, write_id: str, data: bytes, timeout: float = 60.0) -> None:
        """Write to the child's stdin and wait until its pipe has taken it; KeeperError says why it could not."""
        self.send_frame(frames.encode_write(write_id, data))
        while (reply := self._reply(timeout, "stdin: the command did not take its input")) is not None:
            if reply.get("write") == write_id:
                if not reply["ok"]:
                    raise KeeperError(f"stdin: {reply['error']}")
                return
        raise KeeperError("the command ended before it took its input")

    def wake(self) -> None:
        """Continue a keeper that somebody has stopped, if this is the conversation that it was started with."""
        if self._process is not None:
            wake(*self._process)

    def hang_up(self) -> None:
        """End the conversation from another thread than the one that receives."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def detach(self) -> socket.socket:
        """The socket, for whoever goes on with the conversation in another way; nothing may have been received yet."""
        return self._connection

    def close(self) -> None:
        """Hang up; the command goes on."""
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


class KeeperPool:
    """One fork server and the keepers that wait for work; started on first use, safe for many threads."""

    def __init__(self, *, containment: str = "auto", spares: int = 2, kept: int = 8) -> None:
        self._containment = containment
        self._spares = max(1, spares)
        self._kept = max(self._spares, kept)  # warm ones are worth their two megabytes until the next burst
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._capabilities: Capabilities | None = None
        self._receive_lock = threading.Lock()
        self._idle: deque[KeeperConnection] = deque()
        self._coming = 0  # asked of the fork server and not yet received
        self._takers = 0  # threads that wait for one of those

    @property
    def capabilities(self) -> Capabilities:
        """What the fork server can enforce; starts it."""
        with self._lock:
            self._ensure()
            assert self._capabilities is not None
            return self._capabilities

    def take(self) -> KeeperConnection:
        """A keeper that is ready for orders; ResourcesExhaustedError when none could be made for a while."""
        deadline = time.monotonic() + _SPARE_SECONDS
        while True:
            try:
                return self._take()
            except ResourcesExhaustedError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_ASK_AGAIN_SECONDS)

    def _take(self) -> KeeperConnection:
        for _ in range(2):
            with self._lock:
                self._ensure()
                channel = self._socket
                assert channel is not None
                idle = self._idle.popleft() if self._idle else None
                self._takers += 0 if idle else 1
                # Some more than what is wanted now, so that the next command need not wait for a fork.
                self._request(channel, self._takers + self._spares - len(self._idle) - self._coming)
            if idle is not None:
                return idle
            if (fresh := self._receive(channel)) is not None:
                return fresh
            self._forget(channel)
        raise KeeperError("the fork server ends as soon as it starts: run `debug-server doctor`")

    def give_back(self, connection: KeeperConnection) -> None:
        """Return a keeper whose command has ended; it serves the next one, or leaves if there are enough."""
        with self._lock:
            if self._socket is not None and len(self._idle) < self._kept:
                self._idle.append(connection)
                return
        connection.close()

    def shed(self) -> None:
        """Let those go that wait for work: each holds processes that something else could not have."""
        with self._lock:
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def _request(self, channel: socket.socket, count: int) -> None:
        if count > 0:
            with contextlib.suppress(OSError):  # a dead fork server is noticed when nothing arrives
                channel.send(b"+" * count)
            self._coming += count

    def _receive(self, channel: socket.socket) -> KeeperConnection | None:
        received = False
        try:
            with self._receive_lock:
                message, descriptors = self._await_keeper(channel)
            received = bool(message)
        except TimeoutError as error:
            raise KeeperError(f"no keeper was ready within {_SPARE_SECONDS:g} s: the machine is overloaded") from error
        except OSError:
            return None
        finally:
            with self._lock:
                self._takers -= 1
                if received and channel is self._socket:  # a successor counts anew
                    self._coming -= 1
        if message == NO_KEEPER:
            raise ResourcesExhaustedError("no process could be created for a keeper: the limit of processes is reached")
        if message and not descriptors:
            raise KeeperError("no file descriptor is left to talk to a keeper: raise the open files limit")
        if not descriptors:
            return None
        return KeeperConnection(socket.socket(fileno=descriptors[0]), int.from_bytes(message, "little"))

    def _await_keeper(self, channel: socket.socket) -> tuple[bytes, list[int]]:
        """A keeper's pid and socket; a fork server that was stopped is continued, and killed if it stays so."""
        began = time.monotonic()
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
            except TimeoutError:
                silent = time.monotonic() - began
                if silent >= _SPARE_SECONDS:
                    raise
                self._wake(channel, end=silent >= _STOPPED_SECONDS)
            else:
                return message, descriptors

    def _wake(self, channel: socket.socket, *, end: bool) -> None:
        with self._lock:
            process = self._process if self._socket is channel else None
        if process is None or not is_stopped(state_of(process.pid, start_time(process.pid) or 0)):
            return
        process.send_signal(signal.SIGCONT)
        if end:  # its keepers go on without it, and the next command gets another one
            process.kill()

    def _forget(self, channel: socket.socket) -> None:
        with self._lock:
            if self._socket is channel:
                self._close()

    def _ensure(self) -> None:
        if self._socket is not None:
            return
        ours, theirs = socket.socketpair()
        root = str(Path(debug_server.__file__).resolve().parent.parent)
        try:
            arguments = [str(theirs.fileno()), self._containment, root, str(limit_of_commands())]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise (
                ResourcesExhaustedError.of(error) or KeeperError(f"the fork server cannot be started: {error.strerror}")
            ) from error
        finally:
            theirs.close()
        self._socket = ours
        self._coming = 0
        try:
            self._capabilities = self._greet(ours)
        except KeeperError:
            self._close()
            raise
        ours.settimeout(_LOOK_SECONDS)

    def _greet(self, channel: socket.socket) -> Capabilities:
        channel.settimeout(_START_SECONDS)
        line = bytearray()
        while not line.endswith(b"\n"):
            try:
                byte = channel.recv(1)
            except OSError as error:
                raise KeeperError(f"the fork server did not answer: {error}: run `debug-server doctor`") from error
            if not byte:
                raise KeeperError("the fork server ended before it answered: run `debug-server doctor`")
            line += byte
        hello = json.loads(line)
        if "error" in hello:
            raise KeeperError(f"containment {self._containment!r} cannot be had here: {hello['error']}")
        return Capabilities.from_json(hello)

    def _close(self) -> None:
        while self._idle:
            self._idle.popleft().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            # With its socket closed it ends by itself once its last keeper has; that may be long after us. One that
            # is stopped would stay for ever.
            self._process.send_signal(signal.SIGCONT)
            with contextlib.suppress(RuntimeError):  # no thread can be had: then nobody waits for it
                threading.Thread(target=self._process.wait, name="fork-server", daemon=True).start()
            self._process = None

    def close(self) -> None:
        """Let the fork server go; running commands carry on under their keepers."""
        with self._lock:
            self._close()

    def __enter__(self) -> KeeperPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def exit_record(message: dict[str, Any]) -> ExitRecord:
    """From a keeper's exit event."""
    return ExitRecord.from_json(message["record"])
