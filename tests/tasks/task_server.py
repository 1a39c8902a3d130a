"""A server of tasks in a thread of the test, and an HTTP server that receives callbacks."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from debug_server.app import Local
from debug_server.app.server import ServeOptions, http_app, running, uvicorn_config
from debug_server.config import WorkspacesConfig
from debug_server.config.tasks import TasksConfig
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.surfaces.http import HttpApp
from debug_server.surfaces.http.tasks import TasksPart
from debug_server.tasks import Tasks
from tests.running import VISIBLE, eventually

SECONDS = 100.0


class TaskServer:
    """A task server with its own store and engine."""

    def __init__(self, root: Path, *, max_concurrency: int = 8, kill_grace: float = 0.2, **config: Any) -> None:
        self.root = root
        settings = RunnerSettings(
            RunnerPaths.from_root(root / "artifacts"),
            kill_grace=kill_grace,
            isolation=VISIBLE,
            max_concurrency=max_concurrency,
            workspaces=WorkspacesConfig(trusted_repositories=config.pop("trusted_repositories", ())),
        )
        self.local = Local(settings, f"sqlite:///{root}/data/metadata.db")
        containers_dir = settings.paths.artifacts_root / "containers"
        tasks = Tasks(self.local.service, config=TasksConfig(**config), containers_dir=containers_dir)
        self.part = TasksPart(self.local.service, tasks, heartbeat_seconds=0.5)
        self.local.engine.start()

        @asynccontextmanager
        async def lifespan(app: HttpApp) -> AsyncGenerator[None, None]:
            async with running(app):
                yield

        self.app = http_app(self.local, parts=[self.part], lifespan=lifespan)
        made = uvicorn_config(self.app, ServeOptions(port=0))
        made.lifespan, made.host, made.port = "on", "127.0.0.1", 0
        self._server = uvicorn.Server(made)
        self._thread = threading.Thread(target=self._server.run, name="http")
        self._thread.start()
        eventually(lambda: self._server.started, what="the server")
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=SECONDS + 20)

    def submit(self, task_id: str, prompt: str = "hello", *, key: str | None = None, **more: Any) -> httpx.Response:
        """Submit a task; returns the response."""
        body = {"task_id": task_id, "run_id": "run", "prompt": prompt, **more}
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post("/tasks/submit", json=body, headers=headers)

    def submitted(self, task_id: str, prompt: str = "hello", **more: Any) -> dict[str, Any]:
        """Submit a task that must be accepted."""
        answer = self.submit(task_id, prompt, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def get(self, task_id: str) -> dict[str, Any]:
        """A task now."""
        found: dict[str, Any] = self.client.get(f"/tasks/{task_id}").raise_for_status().json()
        return found

    def ended(self, task_id: str) -> dict[str, Any]:
        """A task once it is over."""
        answer = self.client.get(f"/tasks/{task_id}/wait", params={"timeout": SECONDS}).raise_for_status()
        found: dict[str, Any] = answer.json()
        assert found["status"] in ("success", "failed", "canceled"), found
        return found

    def run(self, task_id: str, prompt: str = "hello", **more: Any) -> dict[str, Any]:
        """Submit it and wait for its end."""
        self.submitted(task_id, prompt, **more)
        return self.ended(task_id)

    def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancel it."""
        found: dict[str, Any] = self.client.post(f"/tasks/{task_id}/cancel").raise_for_status().json()
        return found

    def running(self, task_id: str) -> dict[str, Any]:
        """A task once it runs."""
        eventually(lambda: self.get(task_id)["status"] == "running", SECONDS, f"{task_id} running")
        return self.get(task_id)

    def close(self) -> None:
        """Cancel what is left and stop serving."""
        for item in self.client.get("/tasks", params={"limit": 1000}).json()["items"]:
            if item["status"] in ("queued", "running"):
                self.cancel(item["task_id"])
        self.client.close()
        self.app.streams.end_all()
        self._server.should_exit = True
        self._thread.join(60)
        self.local.engine.stop(grace=2)
        self.local.close()


class Receiver:
    """Records every callback and answers as the test says."""

    def __init__(self, port: int = 0) -> None:
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.raw: list[bytes] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = outer.answers.pop(0) if outer.answers else 204
                if status < 300:
                    outer.raw.append(body)
                    outer.seen.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # connections of a killed server break

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def statuses(self, path: str) -> list[str]:
        """The statuses that one target received, in order."""
        return [body["status"] for where, _, body in self.seen if where == path]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
