"""Starts, finds and stops the background server by the lock that it holds, because its pid may have been reused."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debug_server.errors import ConfigurationError, DebugServerError
from debug_server.runner.background_process import start_background
from debug_server.runner.live_commands import live_commands

_START_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 30.0, 20.0, 0.02
_SERVING = re.compile(r"^serving gRPC on port (\d+)$", re.MULTILINE)
_HTTP = re.compile(r"^serving on (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The files of one server."""

    lock: Path
    log: Path
    keepers: Path

    @property
    def state(self) -> Path:
        """The addresses of the server, for other processes of its user."""
        return self.lock.with_name("server.json")


def holder(lock: Path) -> int | None:
    """The pid of the server that holds the lock; None if there is none."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(descriptor)


@contextmanager
def start_lock(files: ServerFiles) -> Iterator[None]:
    """Hold the lock for starting a server: starts share one log, from which each reads the address of its server."""
    files.lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(files.lock.with_name("server.start.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def start(files: ServerFiles, arguments: Sequence[str]) -> dict[str, object]:
    """Start the server; returns its pid and addresses once it serves, or raises with the last line of its output."""
    process = start_background([sys.executable, "-P", "-m", "debug_server", "serve", *arguments], files.log)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        output = files.log.read_text(errors="replace")
        if found := _SERVING.search(output):
            web = _HTTP.search(output)
            state: dict[str, object] = {"pid": process.pid, "grpc_port": int(found[1]), "http": web[1] if web else None}
            return state
        if process.poll() is not None:
            raise ConfigurationError(f"the server did not start: {_last_message(output, files.log)}")
        if time.monotonic() > deadline:
            process.terminate()
            raise ConfigurationError(f"the server did not answer within {_START_SECONDS:g} s: see {files.log}")
        time.sleep(_POLL_SECONDS)


def stop(files: ServerFiles) -> int | None:
    """End the server and return its pid once it is gone; None when there was none."""
    pid = holder(files.lock)
    if pid is None:
        return None
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if holder(files.lock) != pid:  # it has exited, and the pid may be another process's
            return None
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], _STOP_SECONDS)[0]:
            raise DebugServerError(f"server {pid} did not end within {_STOP_SECONDS:g} s: its log is {files.log}")
    finally:
        os.close(process)
    files.state.unlink(missing_ok=True)
    return pid


def continuing(keepers: Path) -> str | None:
    """A sentence that says how many commands outlive a stopped server; None if there are none."""
    count = len(live_commands(keepers))
    subject, them = ("1 command continues", "it") if count == 1 else (f"{count} commands continue", "them")
    return f"{subject}; the next `debug-server serve` adopts {them}" if count else None


def running_server(files: ServerFiles) -> dict[str, object]:
    """The pid and addresses of the running server; empty if none runs, only ``pid`` before it has written them."""
    pid = holder(files.lock)
    if pid is None:
        return {}
    try:
        state: dict[str, object] = json.loads(files.state.read_text())
    except (OSError, ValueError):
        return {"pid": pid}
    return state if state.get("pid") == pid else {"pid": pid}


def _last_message(text: str, log: Path) -> str:
    """The last line that is not JSON: log records seldom contain the reason."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("{")]
    return lines[-1] if lines else f"it gave no reason, its log is {log}"
