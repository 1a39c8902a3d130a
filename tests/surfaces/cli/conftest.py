"""The program as a person uses it, on this machine alone and against a server, with the same words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.client.serving import ServerProcess, make_repository, serving, unmount_below
from tests.running import ROOT

PROGRAM = [sys.executable, "-m", "debug_server"]
SECONDS = 60


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A folder and a person's environment."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The variables of every call."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DEBUG_SERVER_")}
        return {**inherited, "PYTHONPATH": str(ROOT), "DEBUG_SERVER_HOME": str(self.folder / "home"), **self.variables}

    def __call__(self, *arguments: object, stdin: str | None = None) -> Done:
        """Run the program to its end."""
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            env=self.environ,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

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
