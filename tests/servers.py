"""``debug-server serve`` in a process of its own, for a test or a module."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from debug_server.disk import detach, list_mounts
from tests.running import eventually, lasting_port

_SERVING = re.compile(r"serving on http://(?:127\.0\.0\.1|\[::\]):(\d+)")
_GRPC = re.compile(r"serving gRPC on port (\d+)")
_TOKEN = re.compile(r"shown only once: (\S+)")


class ServerProcess:
    """``debug-server serve`` below one folder; it can be killed and started again, on the same ports."""

    def __init__(
        self,
        root: Path,
        *,
        variables: Mapping[str, str] | None = None,
        grpc: bool = False,
        log_level: str = "WARNING",
        host: str = "127.0.0.1",
        python: str = sys.executable,
    ) -> None:
        self.root = root
        self._python = python
        self._host = host
        self._log_level = log_level
        self.variables = dict(variables or {})
        self.grpc_port = lasting_port()
        self._grpc = grpc
        self.token = ""
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        root.mkdir(parents=True, exist_ok=True)

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._starts += 1
        out = self.root / f"serve-{self._starts}.out"
        argv = [self._python, "-m", "debug_server", "serve", "--host", self._host, "--port", str(self.port)]
        argv += ["--log-level", self._log_level]
        argv += ["--grpc-port", str(self.grpc_port)] if self._grpc else ["--no-grpc"]
        with out.open("wb") as target, self.log.open("wb") as errors:
            self._process = self._spawn(argv, target, errors)
        text = eventually(lambda: self._said(out), what="a serving server")
        self.port = int(_SERVING.findall(text)[0])
        if found := _GRPC.search(text):
            self.grpc_port = int(found[1])
        if found := _TOKEN.search(text):
            self.token = found[1]

    def _spawn(self, argv: list[str], stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            cwd=self.root,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    @property
    def log(self) -> Path:
        """What it writes on stderr since its last start."""
        return self.root / f"serve-{self._starts}.err"

    def _said(self, out: Path) -> str | None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended: {self.log.read_text()[-2000:]}")
        text = out.read_text()
        return text if (_GRPC if self._grpc else _SERVING).search(text) else None

    def kill(self) -> None:
        """As a crash would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would."""
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(100)
            self._process = None


@contextlib.contextmanager
def serving(
    root: Path,
    *,
    variables: Mapping[str, str] | None = None,
    grpc: bool = False,
    log_level: str = "WARNING",
    host: str = "127.0.0.1",
) -> Iterator[ServerProcess]:
    """A server for the block."""
    server = ServerProcess(root, variables=variables, grpc=grpc, log_level=log_level, host=host)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        unmount_below(root)


def unmount_below(root: Path) -> None:
    """Give back the workspaces of sessions that a test left open."""
    for mount in reversed(list_mounts(root)):
        detach(mount.target)
