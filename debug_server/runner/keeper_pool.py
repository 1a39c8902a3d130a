"""The pool of keepers: one fork server and its idle keepers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import debug_server
from debug_server.errors import KeeperError, ResourcesExhaustedError
from debug_server.runner.keeper.frames import NO_KEEPER
from debug_server.runner.keeper.linux import start_time
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.keeper_process import is_stopped, process_state
from debug_server.runner.limits import Capabilities
from debug_server.runner.open_files import command_limit

if TYPE_CHECKING:
    from debug_server.runner.settings import RunnerSettings

_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[3]); from debug_server.runner.keeper.forkserver import main; "
    "main(int(sys.argv[1]), sys.argv[2], int(sys.argv[4]))"
)
_START_SECONDS = 60.0
_HELLO_BYTES = 4096
_KEEPER_SECONDS = 30.0
_RETRY_SECONDS = 0.2  # after no process could be created
_STOPPED_SECONDS = 10.0  # a fork server that stays stopped is replaced
_CHECK_SECONDS = 1.0
_SCARCE_SECONDS = 5.0  # after no process could be created: no idle keepers, which count against the limit


class KeeperPool:
    """One fork server and the idle keepers; started on first use, safe to share between threads."""

    def __init__(self, *, containment: str = "auto", spares: int = 2, max_idle: int = 8) -> None:
        self._containment = containment
        self._spares = max(1, spares)
        # An idle keeper takes 2 MB and starts a command faster than a new one.
        self._max_idle = max(self._spares, max_idle)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._capabilities: Capabilities | None = None
        self._receive_lock = threading.Lock()
        self._idle: deque[KeeperConnection] = deque()
        self._requested = 0  # requested from the fork server and not yet received
        self._waiting_threads = 0  # threads that wait for one of them
        self._scarce_until = 0.0  # monotonic time; until then a keeper is made only for a command that waits for it

    @classmethod
    def of(cls, settings: RunnerSettings) -> Self:
        """From settings."""
        return cls(containment=settings.containment, spares=settings.spare_keepers, max_idle=settings.max_concurrency)

    def start(self) -> None:
        """Start the fork server and the first keeper, and wait for nothing; an error comes with the first use.

        For commands that run one after the other: no further keeper is kept ready.
        """
        with self._lock, contextlib.suppress(KeeperError, ResourcesExhaustedError):
            self._spares = 0
            if self._socket is None:
                self._spawn()
                assert self._socket is not None
                self._request(self._socket, 1)

    @property
    def capabilities(self) -> Capabilities:
        """What the fork server can enforce; starts it."""
        with self._lock:
            self._ensure()
            assert self._capabilities is not None
            return self._capabilities

    def take(self) -> KeeperConnection:
        """An idle keeper; ResourcesExhaustedError when none can be created for 30 s."""
        deadline = time.monotonic() + _KEEPER_SECONDS
        while True:
            try:
                return self._take()
            except ResourcesExhaustedError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _take(self) -> KeeperConnection:
        for _ in range(2):
            with self._lock:
                self._ensure()
                channel = self._socket
                assert channel is not None
                idle = self._idle.popleft() if self._idle else None
                self._waiting_threads += 0 if idle else 1
                # Some more than needed now, so that the next command need not wait for a fork.
                spares = 0 if self._is_scarce() else self._spares
                self._request(channel, self._waiting_threads + spares - len(self._idle) - self._requested)
            if idle is not None:
                return idle
            if (fresh := self._receive(channel)) is not None:
                return fresh
            self._forget(channel)
        raise KeeperError("the fork server ends as soon as it starts: run `debug-server doctor`")

    def give_back(self, connection: KeeperConnection) -> None:
        """Return a keeper whose command has ended; it serves another one, or ends if there are enough."""
        with self._lock:
            if self._socket is not None and len(self._idle) < self._max_idle and not self._is_scarce():
                self._idle.append(connection)
                return
        connection.close()

    def close_idle(self) -> None:
        """No process can be created: close the idle keepers, and keep none for a moment."""
        with self._lock:
            self._scarce_until = time.monotonic() + _SCARCE_SECONDS
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()
        self._close_unreceived()

    def _is_scarce(self) -> bool:
        return time.monotonic() < self._scarce_until

    def _close_unreceived(self) -> None:
        """Close the keepers that were forked ahead of time and that no command has taken yet."""
        if not self._receive_lock.acquire(blocking=False):
            return  # a command waits for the next one
        try:
            while (channel := self._socket) is not None and _has_data(channel):
                message, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
                for descriptor in descriptors:
                    os.close(descriptor)
                if not message:
                    return  # the fork server has ended, which the next command notices
                with self._lock:
                    self._requested -= channel is self._socket
        except OSError:
            return  # the pool is being closed
        finally:
            self._receive_lock.release()

    def _request(self, channel: socket.socket, count: int) -> None:
        if count > 0:
            with contextlib.suppress(OSError):  # a dead fork server is noticed when nothing arrives
                channel.send(b"+" * count)
            self._requested += count

    def _receive(self, channel: socket.socket) -> KeeperConnection | None:
        received = False
        try:
            with self._receive_lock:
                message, descriptors = self._await_keeper(channel)
            received = bool(message)
        except TimeoutError as error:
            raise KeeperError(f"no keeper was ready within {_KEEPER_SECONDS:g} s: the machine is overloaded") from error
        except OSError:
            return None
        finally:
            with self._lock:
                self._waiting_threads -= 1
                if received and channel is self._socket:  # a new fork server has its own count
                    self._requested -= 1
        if message == NO_KEEPER:
            raise ResourcesExhaustedError("no process could be created for a keeper: the limit of processes is reached")
        if message and not descriptors:
            raise KeeperError("no file descriptor is left to talk to a keeper: raise the open files limit")
        if not descriptors:
            return None
        return KeeperConnection(
            socket.socket(fileno=descriptors[0]), int.from_bytes(message, "little"), on_no_process=self.close_idle
        )

    def _await_keeper(self, channel: socket.socket) -> tuple[bytes, list[int]]:
        """A keeper's pid and socket; a stopped fork server is continued, and killed if it stays stopped."""
        began = time.monotonic()
        while True:
            try:
                message, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
            except TimeoutError:
                silent = time.monotonic() - began
                if silent >= _KEEPER_SECONDS:
                    raise
                self._wake(channel, end=silent >= _STOPPED_SECONDS)
            else:
                return message, descriptors

    def _wake(self, channel: socket.socket, *, end: bool) -> None:
        with self._lock:
            process = self._process if self._socket is channel else None
        if process is None or not is_stopped(process_state(process.pid, start_time(process.pid) or 0)):
            return
        process.send_signal(signal.SIGCONT)
        if end:  # its keepers continue without it, and the next command starts another one
            process.kill()

    def _forget(self, channel: socket.socket) -> None:
        with self._lock:
            if self._socket is channel:
                self._close()

    def _ensure(self) -> None:
        if self._socket is None:
            self._spawn()
        if self._capabilities is None:
            assert self._socket is not None
            try:
                self._capabilities = self._read_hello(self._socket)
            except KeeperError:
                self._close()
                raise
            self._socket.settimeout(_CHECK_SECONDS)

    def _spawn(self) -> None:
        """Start the fork server."""
        ours, theirs = socket.socketpair()
        root = str(Path(debug_server.__file__).resolve().parent.parent)
        try:
            arguments = [str(theirs.fileno()), self._containment, root, str(command_limit())]
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
        self._requested, self._capabilities = 0, None

    def _read_hello(self, channel: socket.socket) -> Capabilities:
        channel.settimeout(_START_SECONDS)
        line = b""
        while not line.endswith(b"\n"):
            try:
                # What follows the line is left: it is a keeper, whose socket comes with its bytes.
                seen = channel.recv(_HELLO_BYTES, socket.MSG_PEEK)
                line += channel.recv(seen.find(b"\n") + 1 or len(seen))
            except OSError as error:
                raise KeeperError(f"the fork server did not answer: {error}: run `debug-server doctor`") from error
            if not seen:
                raise KeeperError("the fork server ended before it answered: run `debug-server doctor`")
        hello = json.loads(line)
        if "error" in hello:
            raise KeeperError(f"containment {self._containment!r} is not available here: {hello['error']}")
        return Capabilities.from_json(hello)

    def _close(self) -> None:
        while self._idle:
            self._idle.popleft().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            # Without its socket it ends after its last keeper, which may be long after this process. If it is
            # stopped (SIGSTOP), it would never end: continue it.
            self._process.send_signal(signal.SIGCONT)
            with contextlib.suppress(
                RuntimeError
            ):  # no thread can be started: it stays a zombie until this process ends
                threading.Thread(target=self._process.wait, name="fork-server", daemon=True).start()
            self._process = None

    def close(self) -> None:
        """Disconnect from the fork server; running commands continue under their keepers."""
        with self._lock:
            self._close()

    def __enter__(self) -> KeeperPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _has_data(channel: socket.socket) -> bool:
    poller = select.poll()  # select() cannot watch descriptors beyond 1023
    poller.register(channel, select.POLLIN)
    return bool(poller.poll(0))
