"""A governor for one test: a folder with configuration and repositories, its server process and a gRPC client."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from debug_server.kanban import kanban_pb2 as pb
from debug_server.kanban import kanban_pb2_grpc
from tests.home import plain_git
from tests.running import ROOT, eventually, lasting_port

TERMINAL = ("runner.exited", "runner.timeout", "runner.error", "runner.skipped")
SHIPPED = ROOT / "config"
_GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]


def make_repository(path: Path, files: dict[str, str] | None = None) -> Path:
    """A git repository with one commit."""
    path.mkdir(parents=True)
    for name, text in {"README.md": "# here\n", **(files or {})}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*_GIT, "-C", str(path), *words], env=plain_git(), check=True)
    return path


def repos_text(paths: Mapping[str, Path | str]) -> str:
    """A repos.yml."""
    entries = "".join(f"  {name}:\n    local_path: {path}\n    branch: main\n" for name, path in paths.items())
    return f"repos:\n{entries}"


class GovernorProcess:
    """A folder and, between ``start`` and ``stop`` or ``kill``, its server process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.port = lasting_port()
        self.http = ""
        self.host = "127.0.0.1"
        self._process: subprocess.Popen[str] | None = None
        self._channel: Any = None
        (root / "config").mkdir(parents=True, exist_ok=True)

    def configure(self, runners: str | None = None, repos: str | None = None) -> None:
        """Write the configuration files; the default is the shipped ones."""
        for name, text in (("runners.yml", runners), ("repos.yml", repos)):
            target = self.root / "config" / name
            if text is None:
                shutil.copy(SHIPPED / name, target)
            else:
                target.write_text(text)

    def env(self) -> dict[str, str]:
        """The server's environment, without variables of the user who runs the tests that name another place."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEBUG_SERVER_", "PROBE_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        return {**kept, "PATH": path, "DEBUG_SERVER_HOME": str(self.root / "home"), **self.environ}

    def start(self) -> GovernorProcess:
        """Serve, on the same ports as before."""
        words = ["serve", "--host", self.host, "--port", "0", "--grpc-port", str(self.port)]
        words += ["--grace", "3", "--log-level", "WARNING"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "debug_server", *words],
            cwd=self.root,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=(self.root / "server.err").open("a"),
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.match(r"serving on (\S+)", line):
                self.http = found[1]
            if found := re.match(r"serving gRPC on port (\d+)", line):
                self.port = int(found[1])
                self._channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
                grpc.channel_ready_future(self._channel).result(timeout=60)
                return self
        raise AssertionError((self.root / "server.err").read_text())

    def signal(self, number: int) -> None:
        """Send a signal to the server."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        self.signal(signal.SIGKILL)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the server with SIGTERM."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self._process is not None
        if self._channel is not None:
            self._channel.close()
        self._process.send_signal(number)
        self._process.wait(timeout=60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def stub(self, name: str) -> Any:
        """A client of one service."""
        return getattr(kanban_pb2_grpc, f"{name}Stub")(self._channel)

    def emit(self, task: str, kind: str, repo: str, **fields: str) -> Any:
        """Emit one event; returns the answer."""
        request = pb.IssueEventRequest(task_id=task, event_type=kind, repo_name=repo, **fields)
        return self.stub("IssueEvent").Emit(request, timeout=60)

    def stream(self, seconds: float = 30.0, **filters: Any) -> Iterator[Any]:
        """The stream, until it ends or the time is up."""
        return iter(self.stub("IssueEvent").Stream(pb.StreamRequest(**filters), timeout=seconds))

    def events(self, **filters: Any) -> list[Any]:
        """All events of the stream, until all active runs have ended."""
        return list(self.stream(60.0, **filters))

    def run_end(self, task: str) -> tuple[str, dict[str, Any]]:
        """The end of a task's only run: type and payload."""
        endings = [event for event in self.events(task_filter=task) if event.event_type in TERMINAL]
        assert len(endings) == 1, endings
        return endings[0].event_type, json.loads(endings[0].payload)


def kinds(events: Iterable[Any]) -> list[str]:
    """The types of events."""
    return [event.event_type for event in events]


def output(events: Iterable[Any], stream: str = "stdout") -> str:
    """The whole output of a runner."""
    return "".join(json.loads(event.payload)["chunk"] for event in events if event.event_type == f"runner.{stream}")


@contextmanager
def probe(root: Path, repo: str = "", path: Path | None = None, port: int = 0, **variables: str) -> Iterator[int]:
    """The example probe as a process; yields its port."""
    words = ["-P", "-m", "runners.probe_server", "--port", str(port), *(["--repo", f"{repo}={path}"] if repo else [])]
    log = (root / "probe.err").open("a")
    environ = {**os.environ, "SNAPSHOT_DIR": str(root / "snapshots"), "PROBE_HOST": "127.0.0.1", **variables}
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environ
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r":(\d+)\s*$", line)
        assert found, (line, (root / "probe.err").read_text())
        yield int(found[1])
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        log.close()


def wait_for_end(governor: GovernorProcess, task: str) -> tuple[str, dict[str, Any]]:
    """Like ``run_end``, for a task that another process queued."""
    found = lambda: [event for event in governor.events(task_filter=task) if event.event_type in TERMINAL]  # noqa: E731
    (event,) = eventually(found, what=f"the end of {task}")
    return event.event_type, json.loads(event.payload)
