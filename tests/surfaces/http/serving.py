"""A server on a free port of this machine, in a thread of the test or in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from websockets.sync.client import ClientConnection, connect

from debug_server.app import Local
from debug_server.app.parts import build_parts
from debug_server.app.server import ServeOptions, uvicorn_config
from debug_server.runner.open_files import max_connections
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.surfaces.http import HttpSettings, create_http_app
from debug_server.surfaces.http.connections import ConnectionLimits, Connections
from debug_server.surfaces.http.unidentified import UnidentifiedCallers
from tests.running import ROOT, VISIBLE, eventually
from tests.worktrees.places import small_remote

PROGRAM = Path(__file__).with_name("serve_program.py")
SECONDS = 100.0  # for what does happen; a client waits longer than the server does for it


def open_local(root: Path, **settings: Any) -> Local:
    """Everything below one folder."""
    found = RunnerSettings(RunnerPaths.from_root(root / "artifacts"), kill_grace=0.2, isolation=VISIBLE, **settings)
    return Local(found, f"sqlite:///{root}/data/metadata.db")


class Served:
    """The application over a store, an engine and a repository of its own."""

    def __init__(self, root: Path, *, parts: Collection[str] = (), **settings: Any) -> None:
        self.root = root
        self.remote = small_remote(root / "remote")
        self.local = open_local(root)
        self.local.engine.start()
        self.app = create_http_app(
            self.local.service,
            metrics=self.local.telemetry.render,
            settings=HttpSettings(**settings),
            parts=build_parts(self.local, parts) if parts else (),
        )
        options = ServeOptions(port=0)
        unidentified = UnidentifiedCallers(recent_tokens=self.local.service.recent_tokens)
        connections = Connections(ConnectionLimits(max_connections=max_connections()), unidentified=unidentified)
        self._server = uvicorn.Server(uvicorn_config(self.app, options, connections))
        config = self._server.config
        config.host, config.port = options.host, 0
        self._thread = threading.Thread(target=self._server.run, name="http")
        self._thread.start()
        eventually(lambda: self._server.started, what="the server")
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = self.client(["admin"])
        self.admin.post("/repository/init", json={"name": "repo", "remote_url": str(self.remote.path)})

    def token(self, scopes: Sequence[str], **more: Any) -> str:
        """A new token's secret."""
        return self.local.store.tokens.create("tester", list(scopes), **more)[1]

    def client(self, scopes: Sequence[str] = ("admin",), **more: Any) -> httpx.Client:
        """A client that holds a new token."""
        headers = {"Authorization": f"Bearer {self.token(scopes, **more)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS + 30)

    def session(self, client: httpx.Client | None = None, **fields: Any) -> int:
        """A new session's id."""
        body = {"repository": "repo", "commit_sha": self.remote.commits[-1], **fields}
        return int(answered((client or self.admin).post("/sessions", json=body), 201)["id"])

    def submit(self, session_id: int, *argv: str, client: httpx.Client | None = None, **fields: Any) -> int:
        """A new command's id."""
        body = {"argv": list(argv), **fields}
        return int(answered((client or self.admin).post(f"/sessions/{session_id}/commands", json=body), 201)["id"])

    def run(self, session_id: int, *argv: str, **fields: Any) -> int:
        """A command that has ended."""
        command_id = self.submit(session_id, *argv, **fields)
        answered(self.admin.get(f"/commands/{command_id}/wait", params={"timeout": SECONDS}), 200)
        return command_id

    def socket(
        self, path: str, client: httpx.Client | None = None, *, close_timeout: float = SECONDS
    ) -> ClientConnection:
        """A WebSocket."""
        headers = {"Authorization": (client or self.admin).headers["Authorization"]}
        # One that does not read hears no pong either: it does not ask for them.
        return connect(
            f"ws://127.0.0.1:{self.port}{path}",
            additional_headers=headers,
            open_timeout=SECONDS,
            close_timeout=close_timeout,
            ping_interval=None,
        )

    @property
    def followers(self) -> int:
        """How many streams are open."""
        return len(self.app.streams)

    def close(self) -> None:
        """Stop serving; every session is closed."""
        for item in self.local.store.sessions.page(limit=1000):
            if item.status.value in ("pending", "running"):
                self.admin.delete(f"/sessions/{item.id}")
        self.admin.close()
        self._server.should_exit = True
        self._thread.join(SECONDS)
        self.local.engine.stop(grace=2)
        self.local.close()


def answered(response: httpx.Response, status: int) -> dict[str, Any]:
    """The JSON of a response that must have this status."""
    assert response.status_code == status, f"{response.status_code}: {response.text}"
    found: dict[str, Any] = response.json()
    return found


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error object of a refusal."""
    error: dict[str, Any] = answered(response, status)["error"]
    assert error["code"] == code, error
    assert isinstance(error["message"], str) and isinstance(error["retryable"], bool)
    return error


class Process:
    """A server in a process of its own, as an operator has it."""

    def __init__(self, root: Path, *, port: int = 0, options: str = "") -> None:
        self.root = root
        arguments = [sys.executable, str(PROGRAM), str(root), str(port), options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.said: list[str] = []
        self.url = ""

    def started(self) -> Process:
        """Once it serves."""
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.said.append(text.strip())
            if text.startswith("serving on "):
                self.url = text.split()[-1]
                return self
        raise AssertionError(f"it did not start: {self.output()}")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self._process.kill()
        self.output()

    def terminate(self) -> None:
        """As an operator does."""
        self._process.send_signal(signal.SIGTERM)

    def output(self, seconds: float = SECONDS) -> tuple[int, str]:
        """Its exit status and what it said to stderr, once it has ended."""
        _, said = self._process.communicate(timeout=seconds)
        return self._process.returncode, said

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self.output()
