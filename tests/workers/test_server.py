"""Workers in the real server: started at boot from a file, seen and moved by every operator's verb, gone with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from debug_server.client import DebugServerClient
from debug_server.errors import NotFoundError
from tests.running import ROOT, eventually
from tests.workers.supervising import argv

_TIMING = {"WORKER_BACKOFF_INITIAL_MS": "10", "WORKER_RESTART_MAX": "2", "WORKER_STARTUP_TIMEOUT_MS": "60000"}
PROGRAM = [sys.executable, "-m", "debug_server"]


@contextmanager
def served(folder: Path) -> Iterator[tuple[DebugServerClient, subprocess.Popen[str]]]:
    """A server in a folder, and its administrator."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--no-grpc"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **_TIMING},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        secret = process.stdout.readline().split()[-1]
        url = process.stdout.readline().split()[-1]
        with DebugServerClient(base_url=url, token=secret) as client:
            yield client, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.usefixtures("nothing_left")
def test_a_declared_worker_lives_and_ends_with_the_server(tmp_path: Path) -> None:
    """Ready after boot, restarted after a kill, failed after a crash loop until it is reset, stopped by SIGTERM."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "workers.toml").write_text(
        f"[workers.echo]\nargv = {json.dumps(argv('stdout'))}\nline = 'serving requests'\n"
        f"[workers.broken]\nargv = {json.dumps(argv('mute', '--exit-after', 0, '--status', 4))}\n"
    )
    with served(tmp_path) as (client, process):

        def row(name: str) -> dict[str, object]:
            found: dict[str, object] = next(item for item in client.list_workers().items if item["name"] == name)
            return found

        eventually(lambda: row("echo")["ready"], what="a ready worker")
        os.kill(int(str(row("echo")["pid"])), signal.SIGKILL)
        eventually(lambda: row("echo")["ready"] and row("echo")["restarts_total"] == 1, what="its successor")
        assert 'codex_worker_restarts_total{instance="0",worker="echo"} 1.0' in _metrics(client)
        eventually(lambda: row("broken")["phase"] == "failed", what="the end of a crash loop")
        assert row("broken")["restarts_total"] == 2
        assert client.reset_worker("broken").items[0]["consecutive_failures"] == 0
        assert client.stop_worker("echo").items[0]["phase"] == "stopped"
        client.restart_worker("echo", instance=0)
        eventually(lambda: row("echo")["ready"], what="a worker that was started again")
        with pytest.raises(NotFoundError, match="there is no worker 'other'"):
            client.restart_worker("other")
        kinds = {event.kind for event in client.read_events(limit=1000).items}
        assert {"worker.spawned", "worker.ready", "worker.exited", "worker.failed"} <= kinds
    assert process.returncode == 0


def _metrics(client: DebugServerClient) -> str:
    return httpx.get(f"{client.base_url}/metrics", timeout=60).text
