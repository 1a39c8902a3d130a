"""Ready by NOTIFY_SOCKET, as for systemd services: READY=1, WATCHDOG=1, STATUS=….

The socket is a file in the instance's private folder, where no other user can send to it or take its name. The next
supervisor binds it again for an adopted worker. If the path is too long, an abstract name is used, which is random:
another user could bind a predictable one. The kernel verifies the sender of each message.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debug_server.workers.interface import WorkerChannel
from debug_server.workers.readiness.probe import Probe, ProbeFailedError

_CREDENTIALS = struct.Struct("3i")
_MAX_MESSAGE = 4096
_MAX_PATH = 107  # bytes of a unix socket's path


class NotifyProbe(Probe):
    """A datagram socket of one run."""

    _socket: socket.socket | None = None
    _address = ""
    _status = ""
    _alive = True  # a message came since the last check

    @property
    def env(self) -> Mapping[str, str]:
        """The socket's address and the watchdog interval."""
        found = {"NOTIFY_SOCKET": self._address}
        if (interval := self._context.spec.timing.watchdog_interval) is not None:
            found["WATCHDOG_USEC"] = str(round(interval * 1_000_000))
        return found

    def open(self) -> None:
        """Bind the socket."""
        self._address = self._choose_address()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            if self._address.startswith("@"):
                self._socket.bind("\0" + self._address[1:])
            else:
                Path(self._address).unlink(missing_ok=True)  # of a supervisor that was killed
                self._socket.bind(self._address)
        except OSError as error:
            self._socket.close()
            self._socket = None
            raise ProbeFailedError(f"the notify socket {self._address} cannot be bound: {error.strerror}") from error
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _choose_address(self) -> str:
        path = (self._context.folder / "notify.sock").absolute()  # absolute: a worker has another working directory
        if len(os.fsencode(path)) <= _MAX_PATH:
            return str(path)
        kept = self._context.folder / "notify.name"
        if not self._context.adopted or not kept.exists():
            kept.write_text(f"@debug-server/{secrets.token_hex(16)}")
        return kept.read_text()

    def _read(self) -> None:
        assert self._socket is not None
        data, ancillary, _, _ = self._socket.recvmsg(_MAX_MESSAGE, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not any(_is_ours(kind, blob) for _, kind, blob in ancillary):
            return
        for line in data.decode("utf-8", "replace").splitlines():
            name, _, value = line.partition("=")
            if name == "STATUS":
                self._status = value
            elif line == "WATCHDOG=1":
                self._alive = True
            elif line == "READY=1":
                self._alive = True
                self._signal.set()

    async def ready(self, channel: WorkerChannel) -> Mapping[str, Any]:
        """Wait for READY=1; the details are the status line."""
        await self._signal.wait()
        return {"status": self._status} if self._status else {}

    async def check(self) -> None:
        """ProbeFailedError without a WATCHDOG=1 since the last check."""
        if not self._alive:
            raise ProbeFailedError("it sent no WATCHDOG=1 in time")
        self._alive = False

    def close(self) -> None:
        """Close and remove the socket."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            (self._context.folder / "notify.sock").unlink(missing_ok=True)


def _is_ours(kind: int, blob: bytes) -> bool:
    if kind != socket.SCM_CREDENTIALS:
        return False
    return _CREDENTIALS.unpack(blob[: _CREDENTIALS.size])[1] in (os.geteuid(), 0)
