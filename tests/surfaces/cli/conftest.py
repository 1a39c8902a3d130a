"""The program as a person uses it, on this machine alone and against a server, with the same words."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

import pytest

from debug_server.__main__ import main
from debug_server.surfaces.cli.main import COMMANDS
from tests.repositories import make_repository
from tests.running import ROOT, SETTINGS_HERE
from tests.servers import ServerProcess, serving, unmount_below

PROGRAM = [sys.executable, "-m", "debug_server"]
SECONDS = 100

for name in ("app", "client.sync", "surfaces.cli.local_backend", "surfaces.cli.remote_backend"):
    import_module(f"debug_server.{name}")
for name, _ in COMMANDS.values():
    import_module(f"debug_server.surfaces.cli.{name}")


@dataclass(frozen=True, slots=True)
class Done:
    """What one call did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer."""
        return json.loads(self.out)

    @property
    def items(self) -> Any:
        """What the list has that it answered with."""
        assert self.json.keys() == {"items", "next_after"}
        return self.json["items"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A folder and a person's environment."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The variables of every call."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEBUG_SERVER_")}
        own = {"PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": str(self.folder / "home"), **SETTINGS_HERE}
        return {**inherited, **own, **self.variables}

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        """Run the program to its end, in a process of its own that has everything loaded already.

        For commands that speak gRPC there is ``start``: the library may hang in a fork of a process that has used it.
        """
        with tempfile.TemporaryFile() as feed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            feed.write(stdin.encode())
            feed.seek(0)
            pid = os.fork()
            if pid == 0:
                self._become(["debug-server", *map(str, arguments)], (feed.fileno(), out.fileno(), err.fileno()))
            status = _awaited(pid)
            return Done(status, _text(out), _text(err))

    def _become(self, argv: list[str], streams: tuple[int, int, int]) -> NoReturn:
        status = 70
        try:
            for target, source in enumerate(streams):
                os.dup2(source, target)
            sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _writer(1), _writer(2)  # noqa: SIM115
            sys.argv = argv
            os.chdir(self.folder)
            os.environ.clear()
            os.environ.update(self.environ)
            main()
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        except BaseException:  # noqa: BLE001 - the test reads it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Run it, and go on."""
        return subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def _writer(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _awaited(pid: int) -> int:
    descriptor = os.pidfd_open(pid)
    try:
        if not select.select([descriptor], [], [], SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server with one repository."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def alone(tmp_path: Path, nothing_left: None) -> Iterator[Terminal]:
    """No server is configured."""
    folder = tmp_path / "terminal"
    folder.mkdir()
    yield Terminal(folder=folder)
    unmount_below(tmp_path)


@pytest.fixture(params=["local", "remote"])
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Terminal:
    """Once without a server and once with one; the rest of a test is the same."""
    if request.param == "local":
        found: Terminal = request.getfixturevalue("alone")
        return found
    server: ServerProcess = request.getfixturevalue("server")
    folder = tmp_path / "terminal"
    folder.mkdir()
    variables = {"DEBUG_SERVER_URL": server.base_url, "DEBUG_SERVER_TOKEN": server.token}
    return Terminal(folder=folder, variables=variables)


@pytest.fixture
def project(terminal: Terminal, tmp_path: Path) -> Callable[[], str]:
    """Registers a fresh repository and returns its name."""

    def register() -> str:
        path = make_repository(tmp_path / f"project-{tmp_path.name[-40:]}")
        added = terminal("--json", "repo", "add", path)
        assert added.status == 0, added.err
        name: str = added.json["name"]
        return name

    return register
