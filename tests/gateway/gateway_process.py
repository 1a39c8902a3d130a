"""A real ``debug-server gateway serve`` for tests, over the fake worker or the real codex."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.gateway.fake_codex_channel import FAKE
from tests.running import eventually

ROOT = Path(__file__).resolve().parents[2]
CODEX = ROOT / ".cache/codex/node_modules/.bin/codex"
_SERVING = re.compile(r"serving on http://127\.0\.0\.1:(\d+)")
FAST = {"WORKER_BACKOFF_INITIAL_MS": "10", "WORKER_BACKOFF_MAX_MS": "50", "WORKER_SHUTDOWN_GRACE_MS": "2000"}
# A worker that a busy machine lets wait is not one that fails: a restart would be one that nobody caused.
PATIENT = {"WORKER_STARTUP_TIMEOUT_MS": "60000", "WORKER_HANDSHAKE_TIMEOUT_MS": "60000"}


class GatewayProcess:
    """The server below one folder."""

    def __init__(
        self, root: Path, environ: Mapping[str, str], arguments: tuple[str, ...] = ("gateway", "serve")
    ) -> None:
        self.root = root
        self.port = 0
        self._environ = {**{name: value for name, value in os.environ.items() if _plain(name)}, **environ}
        self._arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log records so far."""
        lines = (self.root / "serve.err").read_text().split("\n")[:-1]  # the last may be half written
        return [json.loads(line) for line in lines if line.startswith("{")]

    def launch(self) -> None:
        """Start it, and do not wait."""
        self.root.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-m", "debug_server", *self._arguments, "--port", "0", "--log-level", "INFO"]
        with (self.root / "serve.out").open("wb") as out, (self.root / "serve.err").open("wb") as errors:
            self.process = subprocess.Popen(
                argv, cwd=self.root, env=self._environ, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
            )

    def start(self, *, ready: bool = True) -> None:
        """Start it and wait until it serves, and its worker with it."""
        self.launch()
        self.port = int(eventually(self._said, what="a serving gateway"))
        if ready:
            self.await_ready()

    def _said(self) -> str | None:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.root / "serve.err").read_text()[-3000:])
        found = _SERVING.search((self.root / "serve.out").read_text())
        return found[1] if found else None

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a probe."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def worker(self) -> dict[str, Any]:
        """The worker's status object."""
        found: dict[str, Any] = self.get("/healthz")[1]["worker_supervisor"]
        return found

    def metrics(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))

    def await_ready(self, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the worker."""

        def look() -> dict[str, Any] | None:
            status = self.worker()
            return status if status["ready"] else None

        found: dict[str, Any] = eventually(look, seconds, "a ready worker")
        return found

    def kill_worker(self) -> int:
        """As a crash would; returns its pid."""
        pid: int = self.await_ready()["pid"]
        os.kill(pid, signal.SIGKILL)
        return pid

    def client(self, **options: Any) -> openai.OpenAI:
        """The official client, which tries nothing twice unless told."""
        return openai.OpenAI(
            base_url=self.url + "/v1", **{"api_key": "any", "max_retries": 0, "timeout": 60, **options}
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)


def _plain(name: str) -> bool:
    return not name.startswith(("PROXY_", "WORKER_", "CODEX_", "FAKE_CODEX_", "OPENAI_")) and name != "PORT"


def fake_program(folder: Path, **knobs: str) -> Path:
    """The fake worker as a program, with its knobs set; the name carries the folder, so that leftovers are found."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "codex"
    exports = "".join(f"export FAKE_CODEX_{name}='{value}'\n" for name, value in knobs.items())
    path.write_text(f'#!/bin/sh\n{exports}exec {sys.executable} -I -S {FAKE} "$@"\n')
    path.chmod(0o755)
    return path


@contextlib.contextmanager
def serving(
    root: Path,
    environ: Mapping[str, str] | None = None,
    *,
    ready: bool = True,
    arguments: tuple[str, ...] = ("gateway", "serve"),
    **knobs: str,
) -> Iterator[GatewayProcess]:
    """A gateway over the fake worker for the block; ``arguments`` name the server that it is a part of."""
    program = fake_program(root / "bin", **knobs)
    settings = {"CODEX_BIN": str(program), "CODEX_HOME": str(root / "home"), **FAST, **PATIENT, **(environ or {})}
    gateway = GatewayProcess(root, settings, arguments)
    try:
        gateway.start(ready=ready)
        yield gateway
    finally:
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.stop()


def require_codex() -> Path:
    """The real codex; a test without it says why it is skipped."""
    if not CODEX.exists():
        pytest.skip("codex is not in .cache/codex: `make codex` installs it where npm is there")
    return CODEX


@contextlib.contextmanager
def codex_home() -> Iterator[Path]:
    """A folder for the real codex, which refuses to work below the temporary directory."""
    parent = ROOT / ".cache" / "codex-homes"
    parent.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
