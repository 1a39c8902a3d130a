"""A real server process for one test or module, its repository, and a wire to it that breaks."""

from __future__ import annotations

import contextlib
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from debug_server.disk import detach, list_mounts
from tests.running import eventually, lasting_port

_SERVING = re.compile(r"serving on http://(?:127\.0\.0\.1|\[::\]):(\d+)")
_GRPC = re.compile(r"serving gRPC on port (\d+)")
_TOKEN = re.compile(r"shown this once: (\S+)")


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

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._starts += 1
        out = self.root / f"serve-{self._starts}.out"
        argv = [self._python, "-m", "debug_server", "serve", "--host", self._host, "--port", str(self.port)]
        argv += ["--log-level", self._log_level]
        argv += ["--grpc-port", str(self.grpc_port)] if self._grpc else ["--no-grpc"]
        with out.open("wb") as target, self.log.open("wb") as errors:
            self._process = self._spawn(argv, target, errors)
        text = eventually(lambda: self._said(out), 60.0, "a serving server")
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
            self._process.wait(60)
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


def make_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """A git repository with one commit."""
    path.mkdir(parents=True)
    for name, text in (files or {"a.txt": "hello\n"}).items():
        (path / name).write_text(text)
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environ = {**os.environ, **author, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=path, env=environ, check=True)
    return path


class BrokenWire:
    """A TCP relay to a server; ``cut`` says after how many of the server's bytes a connection breaks, if it does."""

    def __init__(self, server: ServerProcess, cut: random.Random | None = None, *, most: int = 1 << 20) -> None:
        self._server = server
        self._random = cut
        self._most = most
        self.cuts = 0
        self.drop_next_answer = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        """What to give to a client."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Take no more connections."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                backend = socket.create_connection(("127.0.0.1", self._server.port), timeout=60)
            except OSError:
                return  # the server is away: the client sees a connection that closes
            with backend, contextlib.suppress(OSError):
                self._relay(client, backend)

    def _relay(self, client: socket.socket, backend: socket.socket) -> None:
        left = self._random.randrange(1, self._most) if self._random is not None else None
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, backend)
            selector.register(backend, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is backend:
                        if self.drop_next_answer.is_set():
                            self.drop_next_answer.clear()
                            self.cuts += 1
                            return
                        if left is not None:
                            data, left = data[:left], left - len(data)
                    key.data.sendall(data)
                    if left is not None and left <= 0:
                        self.cuts += 1
                        return


@contextlib.contextmanager
def broken_wire(
    server: ServerProcess, cut: random.Random | None = None, *, most: int = 1 << 20
) -> Iterator[BrokenWire]:
    """A relay for the block."""
    wire = BrokenWire(server, cut, most=most)
    try:
        yield wire
    finally:
        wire.close()
