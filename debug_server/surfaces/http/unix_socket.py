"""HTTP on a unix socket that only the server's own user can open."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOG = logging.getLogger(__name__)
_BACKLOG = 128


@contextmanager
def unix_listener(path: Path) -> Iterator[list[socket.socket]]:
    """A socket that listens at ``path``, mode 0600, removed at the end; none where the file system has no sockets."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                _listen(listener, folder, path.name)
            except OSError as error:
                _LOG.warning("unix_socket_not_created", extra={"path": str(path), "error": str(error)})
                yield []
                return
            try:
                yield [listener]
            finally:
                _remove(folder, path.name)
    finally:
        os.close(folder)


def _listen(listener: socket.socket, folder: int, name: str) -> None:
    _remove(folder, name)  # left by a killed server; our caller holds the lock of the only server
    listener.bind(f"/proc/self/fd/{folder}/{name}")  # an address has at most 107 bytes, a path may have more
    os.chmod(name, 0o600, dir_fd=folder)  # before anybody can connect
    listener.listen(_BACKLOG)


def _remove(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
