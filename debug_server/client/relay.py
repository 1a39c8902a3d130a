"""Relays gRPC connections to a server, so that the user of each server is checked before data is sent.

    gRPC library -> unix socket of this process -> TCP connection, checked when it is made -> server

The gRPC library makes its own connections and does not expose them before use; with the relay every connection is
checked, also each new one after the server has restarted.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from debug_server.disk import why_replaceable
from debug_server.errors import AccessError, InvalidInputError
from debug_server.sockets.trust import TrustedServerUser

_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid
_CONNECT_SECONDS, _JOIN_SECONDS = 20.0, 1.0
_CHUNK = 1 << 16
_SOCKET = "relay"
_MAX_PATH = 107  # bytes of a unix socket's path


class Relay:
    """Relays this process's connections to ``host:port``. A context manager; close the channel before leaving it."""

    def __init__(self, target: str, trusted: TrustedServerUser) -> None:
        self._host, self._port = _split(target)
        self._server = f"grpc://{target}"
        self._trusted = trusted
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._folder = _private_folder()
        if self._folder is not None:
            self._listener.bind(str(self._folder / _SOCKET))
            self.address = f"unix:{quote(str(self._folder / _SOCKET))}"
        else:
            name = f"debug-server-{secrets.token_hex(16)}"
            self._listener.bind(f"\0{name}")
            self.address = f"unix-abstract:{name}"
        self.options = (("grpc.default_authority", target), ("grpc.enable_http_proxy", 0))
        self.failure: OSError | AccessError | None = None
        """Why the newest connection could not be made."""

    def __enter__(self) -> Relay:
        self._listener.listen()
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            self._is_closed = True
            for end in (self._listener, *self._open):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            threads = list(self._threads)
        for thread in threads:
            thread.join(_JOIN_SECONDS)
        self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, work: Callable[..., None], *arguments: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        with self._guard:
            self._threads = [known for known in self._threads if known.is_alive()] + [thread]
            thread.start()
        return thread

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            self._start(self._relay_connection, near)

    def _relay_connection(self, near: socket.socket) -> None:
        with near:
            if _pid(near) != os.getpid():
                return
            try:
                far = self._connect()
            except (OSError, AccessError) as error:
                self.failure = error
                return
            self.failure = None
            with far:
                if not self._register(near, far):
                    return
                back = self._start(_copy, far, near)
                _copy(near, far)
                back.join()
                with self._guard:
                    self._open -= {near, far}

    def _connect(self) -> socket.socket:
        far = socket.create_connection((self._host, self._port), timeout=_CONNECT_SECONDS)
        try:
            self._trusted.require(far, self._server)
            far.settimeout(None)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            far.close()
            raise
        return far

    def _register(self, near: socket.socket, far: socket.socket) -> bool:
        """Register both sockets, so that the relay can close them; False if the relay is closed."""
        with self._guard:
            if not self._is_closed:
                self._open |= {near, far}
            return not self._is_closed


def _private_folder() -> Path | None:
    """A new folder for the socket, where no other user can fill its queue; None where there is no place for one.

    Without a folder the socket has an abstract name: connections of other processes are refused, but they can fill its
    queue and so block ours. A process that is killed leaves its folder behind.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="debug-server-")).absolute()
    except OSError:
        return None
    if len(os.fsencode(folder / _SOCKET)) <= _MAX_PATH and why_replaceable(folder) is None:
        return folder
    folder.rmdir()
    return None


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # one end has closed: shut down the other end below
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _pid(near: socket.socket) -> int:
    pid: int = _CREDENTIALS.unpack(near.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    return pid


def _split(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InvalidInputError(f"the gRPC target {target!r} must be HOST:PORT")
    return bare, int(port)
