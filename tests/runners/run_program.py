"""Starts the runner programs the way the server does, in real repositories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUNNERS = ROOT / "runners"
SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a program ended."""

    status: int
    lines: list[str]
    reason: str


def call(module: str, repository: Path, *, stdin: bytes | None = None, **event: Any) -> Done:
    """Run a program on an event in ``repository``; ``stdin`` replaces the event."""
    given = {"task_id": "TEST-01", "repo_name": repository.name, "timestamp": "2026-11-16T08:00:00+00:00", **event}
    if not isinstance(given.get("payload", ""), str):
        given["payload"] = json.dumps(given["payload"])
    command = [sys.executable, "-P", "-m", module]
    environ = {**os.environ, "PYTHONPATH": str(RUNNERS)}
    return finish(command, repository, environ, json.dumps(given).encode() if stdin is None else stdin)


def script(name: str, repository: Path, *, path: str | None = None, **environ: str) -> Done:
    """Run one of the bash runners in ``repository``."""
    given = {**os.environ, **environ, **({"PATH": path} if path else {})}
    return finish(["/bin/bash", str(RUNNERS / "scripts" / name)], repository, given, b"{}")


def finish(command: list[str], cwd: Path, environ: dict[str, str], stdin: bytes) -> Done:
    """Run a process to its end."""
    done = subprocess.run(command, cwd=cwd, env=environ, input=stdin, capture_output=True, check=False, timeout=SECONDS)
    return Done(status=done.returncode, lines=done.stdout.decode().splitlines(), reason=done.stderr.decode().strip())


def git(repository: Path, *arguments: str) -> str:
    """git in a test's repository, with nobody's configuration."""
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=repository, env=environ, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(repository: Path, files: dict[str, str], message: str = "change") -> str:
    """Write files and commit them; gives the commit's id."""
    for path, text in files.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file but git's, by path."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
