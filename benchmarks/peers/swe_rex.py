"""SWE-ReX's remote server (``swe-rex`` on PyPI) on this machine: ``POST /execute``, which runs ``subprocess.run``."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.figures import timed
from benchmarks.peers.contenders import HttpContender, writer
from benchmarks.peers.installation import MissingPeerError, environment_of

_START_SECONDS = 60.0


class SweRex(HttpContender):
    """Commands without a session."""

    name = "swe_rex"

    def __init__(self, port: int, token: str, version: str) -> None:
        super().__init__(port, {"X-API-Key": token})
        self.about = f"HTTP; {version}; nothing is kept; no isolation"

    def execute(self, argv: list[str]) -> dict[str, Any]:
        """One request; its answer has the output."""
        found: dict[str, Any] = self.ask("POST", "/execute", {"command": argv})
        if found["exit_code"] != 0:
            raise OSError(f"{argv[0]} did not end well: {found['exit_code']}")
        return found

    def run_output(self, total: int) -> float:
        """The answer has all of it."""
        return timed(lambda: self._check_output(total))

    def _check_output(self, total: int) -> None:
        if (received := len(self.execute(writer(total))["stdout"])) != total:
            raise OSError(f"swe-rex returned {received} of {total} bytes")


@contextmanager
def swe_rex(*, install: bool) -> Iterator[SweRex]:
    """A server of its own; MissingPeerError if it cannot be had."""
    environment, version = environment_of("swe-rex", install=install)
    token, port = secrets.token_hex(16), _free_port()
    argv = [str(environment / "bin" / "swerex-remote"), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        [*argv, "--auth-token", token], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        contender = SweRex(port, token, version)
        try:
            _await_server(server, contender)
            yield contender
        finally:
            contender.close()
            server.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _await_server(server: subprocess.Popen[bytes], contender: SweRex) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            contender.execute(["true"])
        except ConnectionError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise MissingPeerError("swe-rex", f"its server did not start within {_START_SECONDS:g} s") from error
        else:
            return
        time.sleep(0.05)
