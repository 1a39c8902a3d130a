"""Starts servers: a process that imports everything once, then forks a server at each request.

A fork, so that a server is at its work at once and a kill hits work, not imports. The spawner is a subreaper: whatever
a killed server leaves becomes its descendant, so that "nothing is left" can be read off its children.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from debug_server.engine import LocalEngine
from debug_server.runner.keeper.cgroup import own_directories
from debug_server.runner.keeper.linux import become_subreaper
from debug_server.runner.keeper.tree import descendants, send_signal
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import open_store
from tests.running import VISIBLE
from tests.soak import workspace_users

ROOT = Path(__file__).resolve().parent.parent.parent
_SERVER, USER, LAST_USER = b"+", b"t", b"l"
_PATIENCE = 60.0
_LEAVE_SECONDS = 60.0


def database(root: Path) -> str:
    """Where the soak's store lies."""
    return str(root / "store.db")


def paths(root: Path) -> RunnerPaths:
    """Where the soak's commands leave things."""
    return RunnerPaths.from_root(root / "artifacts")


def adoptions(root: Path) -> Path:
    """Where each server notes the commands that it adopted."""
    return root / "adopted"


def outages(root: Path) -> Path:
    """There once the campaign has locked the store: from then on servers may say that it was."""
    return root / "outages"


# -- in the spawner's process -----------------------------------------------------------------------------------------


def serve(root: Path, containment: str) -> NoReturn:
    """Be a server: recover, work off the queue, end at SIGTERM. Warnings go to stderr, where the checker finds them."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(message)s %(error)s", defaults={"error": ""}))
    handler.addFilter(lambda record: not (outages(root).exists() and _tells_of_outage(record)))
    logging.getLogger().addHandler(handler)
    store = open_store(database(root))
    settings = RunnerSettings(
        paths(root), kill_grace=0.2, max_concurrency=16, containment=containment, isolation=VISIBLE
    )
    supervisor = WorkerSupervisor(
        metadata_store=store,
        paths=settings.paths,
        environment_manager=None,
        base_env={"PATH": os.environ.get("PATH", os.defpath)},
        settings=settings,
    )
    engine = LocalEngine(store=store, supervisor=supervisor)
    adopted = engine.start()
    with adoptions(root).open("a") as file:
        file.write(json.dumps(adopted) + "\n")
    signal.sigwait({signal.SIGTERM})
    engine.stop(grace=_PATIENCE)
    supervisor.close()
    store.close()
    sys.stderr.flush()
    os._exit(0)


def _tells_of_outage(record: logging.LogRecord) -> bool:
    error = str(getattr(record, "error", ""))
    return "is locked by another process" in error or "is busy with another thread's write" in error


def main(root: Path, containment: str) -> None:
    """Obey one-letter requests on stdin and report the start and end of servers as JSON lines on stdout."""
    become_subreaper()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a server waits for it, however early it comes
    wakeup_read, wakeup_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([0, wakeup_read], [], [])
        if wakeup_read in ready:
            os.read(wakeup_read, 4096)
            _reap(children)
        if 0 in ready:
            if not (kind := os.read(0, 1)):
                break
            children.add(_start(kind, root, containment))
    while left := descendants(os.getpid()):
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        _reap(set())


def _run(kind: bytes, root: Path, manner: str) -> NoReturn:
    if kind == USER:
        workspace_users.run_until_killed(root, manner, int.from_bytes(os.urandom(4)))
    if kind == LAST_USER:
        workspace_users.recover_everything(root, manner)
    serve(root, manner)


def _start(kind: bytes, root: Path, containment: str) -> int:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            _run(kind, root, containment)
        finally:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    _say({"started": pid})
    return pid


def _reap(children: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] in children:
                children.discard(found[0])
                _say({"ended": found[0], "status": os.waitstatus_to_exitcode(found[1])})


def _say(message: dict[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


# -- in the campaign --------------------------------------------------------------------------------------------------


class Spawner:
    """The spawner's process, at most one live server below it, and any number of users of workspaces."""

    def __init__(self, root: Path, containment: str) -> None:
        self.stderr = root / "servers.stderr"
        with self.stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.spawner", str(root), containment],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.server: int | None = None
        self._ended: dict[int, int] = {}
        self.groups = ControlGroups(self.pid)

    def start_server(self) -> int:
        """Start a server; returns its pid at once."""
        self.server = self.start(_SERVER)
        return self.server

    def start(self, kind: bytes) -> int:
        """Start a process of that kind; returns its pid at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(kind)
        while "started" not in (message := self._hear()):
            self._ended[message["ended"]] = message["status"]
        return message["started"]

    def end(self, pid: int, number: int | None = None) -> int:
        """Send it a signal, or none, and wait for its end; returns its exit status."""
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while pid not in self._ended:
            message = self._hear()
            self._ended[message["ended"]] = message["status"]
        return self._ended.pop(pid)

    def kill_server(self) -> None:
        """End the server by SIGKILL; returns when it is gone."""
        self._signal(signal.SIGKILL)

    def stop_server(self) -> int:
        """End the server in the orderly way; returns its exit status."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> int:
        assert self.server is not None
        status = self.end(self.server, number)
        self.server = None
        return status

    def _hear(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the spawner has ended: {self.stderr.read_text()}")
        found: dict[str, int] = json.loads(line)
        return found

    def await_empty(self) -> list[int]:
        """Wait until nothing is left of what the soak ever started; returns the processes that stay."""
        deadline = time.monotonic() + _LEAVE_SECONDS
        while (left := descendants(self.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)  # the end of somebody else's child is no event that can be waited for
        return left

    def close(self) -> None:
        """End the spawner, which ends whatever is below it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class ControlGroups:
    """Control groups of the soak's own, where this user may make them: what is left in one was left by the soak."""

    def __init__(self, pid: int) -> None:
        self.paths: list[Path] = []
        for parent in sorted(set(own_directories().values())):
            path = Path(parent) / f"debug-server-soak-{pid}"
            with contextlib.suppress(OSError):
                path.mkdir()
                self.paths.append(path)
                (path / "cgroup.procs").write_text(str(pid))

    def left(self) -> list[str]:
        """Groups that somebody made below and nobody removed."""
        return [str(group) for path in self.paths for group in path.iterdir() if group.is_dir()]

    def remove(self) -> None:
        """Remove the groups; call when the spawner has ended and ``left`` has been asked."""
        for path in [*map(Path, self.left()), *self.paths]:
            with contextlib.suppress(OSError):  # held by what the checker has reported
                path.rmdir()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
