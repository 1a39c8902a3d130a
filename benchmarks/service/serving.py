"""Server processes for one measurement, in a temporary folder that is gone afterwards."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.command_setup import unused_session
from benchmarks.repository import Amounts, generate
from debug_server.disk import detach, list_mounts
from debug_server.store import open_store

_SERVING = re.compile(rb"serving on http://127\.0\.0\.1:(\d+)\n")
_TOKEN = re.compile(rb"shown only once: (\S+)\n")
_LEAVE_SECONDS = 30.0
_REPOSITORY = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers."""

    pid: int
    port: int
    token: str
    started_seconds: float  # from the start of the process to its first answer

    def connect(self) -> Connection:
        """A connection that is kept."""
        return Connection(self.port, self.token)


class Connection:
    """Requests after each other over one connection."""

    def __init__(self, port: int, token: str) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._sessions: list[int] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The decoded answer, which must be a success."""
        data = self.answer(method, path, None if body is None else json.dumps(body).encode())
        return json.loads(data)

    def answer(self, method: str, path: str, body: bytes | None = None, *, key: str | None = None) -> bytes:
        """The answer to its end."""
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        self._http.request(method, path, body, headers)
        response = self._http.getresponse()
        data = response.read()
        if response.status >= http.client.BAD_REQUEST:
            raise OSError(f"{method} {path}: {response.status} {data[:200]!r}")
        return data

    def first_line(self, path: str) -> bytes:
        """The first line of an answer that goes on; the connection cannot be used again."""
        self._http.request("GET", path, headers=self._headers)
        return self._http.getresponse().readline()

    def open_session(self) -> int:
        """A session in the server's repository."""
        session = self.ask("POST", "/sessions", {"repository": _REPOSITORY, "commit_sha": "main"})
        self._sessions.append(session["id"])
        return int(session["id"])

    def submit(self, session_id: int, *argv: str) -> int:
        """The number of a command that waits."""
        return int(self.ask("POST", f"/sessions/{session_id}/commands", {"argv": argv})["id"])

    def close(self) -> None:
        """Close its sessions, whose workspaces others need, and hang up."""
        while self._sessions:
            self.ask("DELETE", f"/sessions/{self._sessions.pop()}")
        self._http.close()


@contextmanager
def serving(
    variables: Mapping[str, str] | None = None, *, prepare: Callable[[Path], str] | None = None
) -> Iterator[Server]:
    """``debug-server serve`` with its defaults, but for ``variables``, and a repository that it knows.

    ``prepare`` may put a store into the folder first, and returns the secret of a token of that store.
    """
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name:
        folder = Path(name)
        token = None if prepare is None else prepare(folder)
        generate(folder / "repository", Amounts(files=20, commits=2))
        with open_store(f"sqlite:///{folder}/.artifacts/data/metadata.db") as store:
            unused_session(store)
        argv = [sys.executable, "-m", "debug_server", "serve", "--port", "0", "--grpc-port", "0"]
        try:
            with _process([*argv, "--log-level", "WARNING"], folder, variables or {}) as started:
                server = started if token is None else replace(started, token=token)
                connection = server.connect()
                remote = {"name": _REPOSITORY, "remote_url": str(folder / "repository")}
                connection.ask("POST", "/repository/init", remote)
                connection.close()
                yield server
        finally:
            for mount in reversed(list_mounts(folder)):
                detach(mount.target)


@contextmanager
def bare_server() -> Iterator[Server]:
    """The smallest application on the same HTTP server."""
    with _process([sys.executable, "-m", "benchmarks.service.bare_app"], Path.cwd(), {}) as server:
        yield server


@contextmanager
def _process(argv: Sequence[str], folder: Path, variables: Mapping[str, str]) -> Iterator[Server]:
    began = time.perf_counter()
    environ = {**os.environ, "DEBUG_SERVER_PATHS_ARTIFACTS": ".artifacts", **variables}
    child = subprocess.Popen(argv, cwd=folder, env=environ, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    try:
        said = b""
        while not (port := _SERVING.search(said)):
            line = child.stdout.readline()
            if not line:
                raise OSError(f"{argv[2]} ended with {child.wait()} before it served")
            said += line
        connection = Connection(int(port[1]), "")
        _answers(connection)
        token = _TOKEN.search(said)
        yield Server(
            pid=child.pid,
            port=int(port[1]),
            token=token[1].decode() if token else "",
            started_seconds=time.perf_counter() - began,
        )
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(_LEAVE_SECONDS)
        child.stdout.close()


def _answers(connection: Connection) -> None:
    connection._http.request("GET", "/health")
    connection._http.getresponse().read()
    connection.close()
