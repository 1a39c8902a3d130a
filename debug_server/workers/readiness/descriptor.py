"""Ready by a newline on a descriptor: a named pipe that a shell opens before it execs the worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from debug_server.workers.readiness.probe import Probe
from debug_server.workers.spec import FdReadiness

_VARIABLE = "DEBUG_SERVER_READY_PIPE"


class FdProbe(Probe):
    """Keeps both ends open, so that opening the pipe never blocks and it has no end of file."""

    _fd = -1

    @property
    def env(self) -> Mapping[str, str]:
        """The path of the pipe."""
        return {_VARIABLE: str(self._context.folder / "ready.pipe")}

    @property
    def wrapper(self) -> Sequence[str]:
        """A shell that opens the descriptor and execs the worker, so that the pid stays the same."""
        readiness = self._context.spec.readiness
        assert isinstance(readiness, FdReadiness)
        return ("/bin/sh", "-c", f'exec "$0" "$@" {readiness.fd}>"${_VARIABLE}"')

    def open(self) -> None:
        """Create a new pipe for this run."""
        path = self._context.folder / "ready.pipe"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        if b"\n" in os.read(self._fd, 4096):
            self._signal.set()

    def close(self) -> None:
        """Remove the pipe."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
            (self._context.folder / "ready.pipe").unlink(missing_ok=True)
