"""Ready by a line of stdout."""

from __future__ import annotations

import json

from debug_server.workers.readiness.probe import Probe
from debug_server.workers.spec import StdoutReadiness

_MAX_LINE = 64 << 10  # only the beginning of a longer line is checked
_WORDS = ("ready", "listening", "healthy")


class StdoutProbe(Probe):
    """Checks each line until one says ready."""

    _partial = b""

    def feed(self, piece: bytes) -> None:
        """Add a piece of stdout; it may end within a line."""
        if self._signal.is_set():
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._check_line(self._partial + line[: _MAX_LINE - len(self._partial)])
            self._partial = b""
        self._partial += rest[: _MAX_LINE - len(self._partial)]

    def _check_line(self, line: bytes) -> None:
        readiness = self._context.spec.readiness
        assert isinstance(readiness, StdoutReadiness)
        if readiness.line.encode() in line if readiness.line is not None else says_ready(line):
            self._signal.set()


def says_ready(line: bytes) -> bool:
    """Whether a line is a JSON object that means ready."""
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return message.get("ready") is True or any(message.get(name) in _WORDS for name in ("event", "status"))
