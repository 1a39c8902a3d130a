"""A store, a session and a supervisor for one test, commands in threads, and the search for what they left behind."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.config import IsolationConfig
from debug_server.model import Command, SessionPlan
from debug_server.runner.keeper import cgroup, containment
from debug_server.runner.keeper.linux import is_alive, stat_fields
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.log_reader import LogReader
from debug_server.runner.run_dirs import read_json, run_dir_for
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import open_store
from debug_server.store.sqlite import BUSY_SECONDS

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).parent / "runner" / "programs"
MECHANISMS = ("cgroup", "pid-namespace", "session")
PYTHON = [sys.executable, "-I", "-S"]
_RETURNED: set[int] = set()  # ports that were given out
# Commands of tests signal by files, and run programs of this repository: isolated ones see both, besides their own.
VISIBLE = IsolationConfig(
    read=(str(ROOT), sys.prefix, sys.base_prefix), write=(os.path.realpath(tempfile.gettempdir()),)
)
SETTINGS_HERE = {
    "DEBUG_SERVER_PATHS_ARTIFACTS": ".artifacts",  # each program's data in its own working directory
    "DEBUG_SERVER_ISOLATION_READ": ":".join(VISIBLE.read),
    "DEBUG_SERVER_ISOLATION_WRITE": ":".join(VISIBLE.write),
}
TAG = "LC_DEBUG_SERVER_TEST"  # LC_*: the child environment inherits it


def eventually(found: Callable[[], Any], seconds: float = 100.0, what: str = "") -> Any:
    """The first true value of ``found()``; fails after ``seconds``, which a busy machine may need."""
    deadline = time.monotonic() + seconds
    pause = 0.005
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or found}")
        time.sleep(pause)
        pause = min(pause * 1.25, 0.04)  # a look at every process or at a server costs more than the wait is worth


def lasting_port() -> int:
    """A free port that the kernel gives to nobody by itself: whoever comes back finds it free again.

    One of those that it does give may meanwhile be the near end of anybody's connection, even of one to that very port.
    A server asks for its ports before it takes any, so none is returned twice.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.choice([port for port in own_ports() if port not in _RETURNED])
        with contextlib.suppress(OSError), socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("", port))  # some servers listen on all addresses
            _RETURNED.add(port)
            return port


def own_ports() -> range:
    """Those that no other worker of the same test run chooses from: it could take one before its server is there."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    return range(15_000 + worker * 2_000, 17_000 + worker * 2_000)


def missing_mechanism(name: str) -> str | None:
    """Why this machine, or this user, cannot hold trees by ``name``; None when it can."""
    reader, writer = os.pipe()
    pid = os.fork()  # a probe moves processes about; it must not be this one
    if pid == 0:
        try:
            os.write(writer, _probe(name).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        reason = file.read()
    os.waitpid(pid, 0)
    return reason or None


def _probe(name: str) -> str:
    try:
        containment.choose(name)
    except cgroup.CgroupError as error:
        return str(error) or name
    return ""


def program(name: str, *arguments: object) -> list[str]:
    """The command line of one of the misbehaving programs."""
    return [*PYTHON, str(PROGRAMS / name), *map(str, arguments)]


def python(text: str, *arguments: object) -> list[str]:
    """The command line of a few lines of Python."""
    return [*PYTHON, "-c", text, *map(str, arguments)]


@dataclass(frozen=True, slots=True)
class Workspace:
    """A lease, as the seed knows it."""

    path: Path


class Bench:
    """Everything that running commands needs, below one folder."""

    def __init__(
        self,
        root: Path,
        containment: str = "auto",
        *,
        database_url: str | None = None,
        busy_seconds: float = BUSY_SECONDS,
        **settings: Any,
    ) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.database_url = database_url or f"sqlite:///{root}/data/metadata.db"
        self.store = open_store(self.database_url, busy_seconds=busy_seconds)
        self.session = self.store.sessions.create(plan=SessionPlan(directory=str(self.workspace)))
        self.settings = RunnerSettings(
            RunnerPaths.from_root(root / "artifacts"), containment=containment, **{"kill_grace": 0.2, **settings}
        )
        self.supervisor = self.new_supervisor()

    def new_supervisor(self) -> WorkerSupervisor:
        """A supervisor without virtual environments."""
        return WorkerSupervisor(
            metadata_store=self.store,
            paths=self.settings.paths,
            environment_manager=None,
            settings=self.settings,
        )

    def run(self, argv: Sequence[str], *, observers: Sequence[Any] = (), **spec: Any) -> CommandResult:
        """One command, to its end."""
        return self.supervisor.run_inline(
            self.session.id,
            CommandSpec(argv, **spec),
            Workspace(self.workspace),
            observers=tuple(observers),
            observer_seconds=100.0,  # a busy machine may need them before an observer has heard everything
        )

    def start(self, argv: Sequence[str], *, observers: Sequence[Any] = (), **spec: Any) -> Started:
        """One command in a thread of its own, once its keeper has it."""
        before = {command.id for command in self.store.commands.in_session(self.session.id)}
        started = Started(self, lambda: self.run(argv, observers=observers, **spec))
        started.find(before, argv)
        return started

    def dismiss_watchdog(self) -> None:
        """From now on a keeper that the test stops stays stopped: nobody looks after it once a second."""
        self.supervisor.pipeline._watchdog.close()

    def log(self, result: CommandResult | Command) -> dict[str, bytes]:
        """A command's log by stream."""
        return read_log(Path(str(result.log_path)))

    def close(self) -> None:
        """Let go of everything; what a failed test left running is cancelled."""
        pipeline = self.supervisor.pipeline
        pipeline.cancel_all()
        deadline = time.monotonic() + 30.0
        while pipeline.running and time.monotonic() < deadline:
            time.sleep(0.01)
        self.supervisor.close()
        self.store.close()


def read_log(path: Path) -> dict[str, bytes]:
    """The bytes of each stream."""
    found = {"stdout": bytearray(), "stderr": bytearray(), "system": bytearray()}
    with LogReader(path) as reader:
        for segment in reader.segments():
            found[segment.stream] += segment.data
    return {stream: bytes(data) for stream, data in found.items()}


class Started:
    """A command that runs in a thread of this process."""

    def __init__(self, bench: Bench, work: Callable[[], CommandResult]) -> None:
        self._bench = bench
        self._work = work
        self._result: CommandResult | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.command: Command
        self.run_dir: Path

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asks
            self._result = error

    def find(self, before: set[int], argv: Sequence[str]) -> None:
        """Wait for the row to say ``running``."""

        def look() -> bool:
            if isinstance(self._result, BaseException):
                raise self._result
            for command in self._bench.store.commands.in_session(self._bench.session.id):
                if command.id not in before and list(command.argv) == list(argv) and command.status != "pending":
                    self.command = command
                    return True
            return False

        eventually(look, what="a running command")
        paths = self._bench.settings.paths
        self.run_dir = run_dir_for(paths.keepers_dir, self.command.id, self.command.attempt)

    def handle(self) -> dict[str, Any]:
        """What the keeper wrote about itself."""
        handle = read_json(self.run_dir / "handle.json")
        assert handle is not None
        return handle

    def connect(self) -> KeeperConnection:
        """To its keeper, as another process would."""

        def dial() -> KeeperConnection | None:
            with contextlib.suppress(RuntimeError):
                return KeeperConnection.connect(self.run_dir)
            return None

        connection: KeeperConnection = eventually(dial, what="a listening keeper")
        return connection

    def await_output(self, text: bytes, seconds: float = 100.0) -> None:
        """Wait until its log holds ``text``."""
        assert self.says(text, seconds), f"it ended without {text!r} in the log"

    def says(self, text: bytes, seconds: float = 100.0) -> bool:
        """Wait until its log holds ``text``; False if it ended without."""
        path = Path(str(self.command.log_path))

        def has_said() -> bool:
            return path.exists() and text in path.read_bytes()

        eventually(lambda: not self._thread.is_alive() or has_said(), seconds, f"{text!r} in the log")
        return has_said()

    def result(self, seconds: float = 100.0) -> CommandResult:
        """How it ended; raises what the call raised."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the command did not end within {seconds:g} s"
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result


def processes() -> Iterator[int]:
    """Every live process; a zombie is not."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields is not None and fields[0] not in "ZX":
                yield int(name)


def new_mark(name: str) -> str:
    """A word for the command lines of one test, whoever else runs the same test beside it."""
    return f"{name}-{secrets.token_hex(8)}"


def carrying(mark: str) -> list[int]:
    """The live processes whose command line holds ``mark``."""
    return [pid for pid in processes() if mark.encode() in _read(f"/proc/{pid}/cmdline")]


def rooted_in(root: Path, tag: str) -> list[tuple[int, str]]:
    """Live processes that carry the test's tag, work in its folder or hold a file of it; not this one."""
    return [(pid, _describe(pid)) for pid in processes() if pid != os.getpid() and _belongs(pid, str(root), tag)]


def _belongs(pid: int, root: str, tag: str) -> bool:
    if tag.encode() in _read(f"/proc/{pid}/environ").split(b"\0"):
        return True
    links = [f"/proc/{pid}/cwd"]
    with contextlib.suppress(OSError):
        links += [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return any(f"{_link(link)}/".startswith(f"{root}/") for link in links)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _describe(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def run_files(root: Path) -> list[str]:
    """Run directories and owners' files below ``root``; a thread may be deleting there, which no glob survives.

    A pool of this process that leased by itself has its file until this process ends.
    """
    found = []
    own = f".{os.getpid()}-"
    for folder, folders, files in os.walk(root):
        name = os.path.basename(folder)
        if name == "keepers":
            found += [os.path.join(folder, entry) for entry in (*folders, *files)]
        elif name == "owners":
            is_pool = os.path.basename(os.path.dirname(folder)).startswith(".pool-")
            locks = [entry for entry in files if entry.endswith(".lock") and not (is_pool and own in entry)]
            found += [os.path.join(folder, entry) for entry in locks]
    return found


def orphaned_groups() -> set[str]:
    """Control groups of ours whose keeper is dead."""
    found = set()
    for top in Path("/sys/fs/cgroup").glob("*"):
        for directory, folders, _ in os.walk(top):
            for name in list(folders):
                if name.startswith(containment.GROUP_PREFIX):
                    folders.remove(name)
                    pid, started, _ = name.removeprefix(containment.GROUP_PREFIX).split("-")
                    if not is_alive(int(pid), int(started)):
                        found.add(os.path.join(directory, name))
    return found
