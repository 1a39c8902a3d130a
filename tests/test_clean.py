"""``make clean`` and ``debug-server purge`` leave nothing, for root and for a plain user, after a server was killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from debug_server.disk import list_mounts, remove_tree
from debug_server.worktrees.overlay import why_overlay_fails
from tests.other_users import as_user, owned_repository, shared_python
from tests.runner.environment_support import make_wheel
from tests.running import ROOT, TAG, carrying, eventually, new_mark, rooted_in

NOBODY = 65534
SECONDS = 250
TARGETS_MAKE = (".cache", ".demo", ".mypy_cache", ".pytest_cache", "dist", "package/__pycache__")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """An interpreter with the product that every user of this machine can run."""
    with tempfile.TemporaryDirectory(prefix="debug-server-python-") as name:
        Path(name).chmod(0o755)
        try:
            yield shared_python(Path(name))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no interpreter that every user can run: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """What ``make clean`` needs of a checkout, in a folder that belongs to one user."""

    root: Path
    uid: int
    python: str

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.root / ".artifacts"

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """A program of that user's."""
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "UV_FIND_LINKS": str(self.root / "wheels"),
            "UV_OFFLINE": "1",
            TAG: str(self.root),
        }
        return as_user(self.uid, argv, cwd=self.root, env=environ)

    def run(self, *argv: str) -> tuple[int, str, str]:
        """The same to its end: status, output, errors."""
        process = self.start(*argv)
        out, errors = process.communicate(timeout=SECONDS)
        return process.returncode, out.decode(), errors.decode()

    def make_ready(self) -> None:
        """The program, the data folder and what other targets leave, some of it read-only."""
        program = self.root / ".venv/bin/debug-server"
        for name in (".artifacts", ".venv/bin", *TARGETS_MAKE):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {self.python} -m debug_server "$@"\n')
        program.chmod(0o755)
        (self.root / ".cache/sealed").mkdir(exist_ok=True)
        (self.root / ".cache/sealed/file").write_text("x")
        (self.root / ".cache/sealed").chmod(0o555)
        self.give()

    def give(self) -> None:
        """Everything to its user."""
        for path in (self.root, *self.root.rglob("*")):
            os.lchown(path, self.uid, self.uid)

    def leave_behind(self, mark: str) -> None:
        """A server and a run in a workspace with an environment, both killed; the run's command goes on."""
        server = self.start(".venv/bin/debug-server", "serve", "--port", "0", "--no-grpc")
        code = f"import time; print('runs', flush=True); time.sleep(600)  # {mark}"
        where = ["--repo", "remote", "--manifest", "requirements.txt"]
        run = self.start(".venv/bin/debug-server", "run", *where, "--", "python", "-c", code)
        for process, word in ((server, b"serving on"), (run, b"runs")):
            assert process.stdout is not None
            lines = iter(process.stdout.readline, b"")
            assert any(word in line for line in lines), process.communicate()[1].decode()
            process.kill()
            process.communicate(timeout=SECONDS)
        assert carrying(mark) and any((self.data / "envs").iterdir())

    def check_nothing_left(self, mark: str) -> None:
        """No process, no mount, no data folder."""
        eventually(lambda: not carrying(mark) and not rooted_in(self.root, f"{TAG}={self.root}"), what="no process")
        assert list_mounts(self.root) == [] and not self.data.exists()


@pytest.fixture(params=["root", "user"])
def checkout(request: pytest.FixtureRequest, python: str) -> Iterator[Checkout]:
    """Of root's and of a plain user's."""
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("only root is root")
    uid = 0 if request.param == "root" else os.geteuid() or NOBODY
    root = Path(tempfile.mkdtemp(prefix="debug-server-clean-"))
    root.chmod(0o755)
    for name in ("scripts", "home"):
        (root / name).mkdir()
    shutil.copy(ROOT / "scripts/clean", root / "scripts")
    shutil.copy(ROOT / "Makefile", root)
    make_wheel(root / "wheels", "tiny", "1.0")
    owned_repository(root / "remote", uid, {"requirements.txt": "tiny\n"})
    yield Checkout(root=root, uid=uid, python=python)
    assert remove_tree(root) == []


def test_clean_and_purge_leave_nothing(checkout: Checkout) -> None:
    """What a killed server and a killed run left is ended, unmounted and removed; other files stay."""
    mark = new_mark("clean")
    checkout.make_ready()
    checkout.leave_behind(mark)
    if checkout.uid == 0 and why_overlay_fails(checkout.root / "home") is None:
        assert list_mounts(checkout.data)
    status, out, errors = checkout.run(".venv/bin/debug-server", "purge")
    assert status == 2 and mark in out and "remove envs (" in out and "--yes" in errors
    assert carrying(mark)
    status, _, errors = checkout.run(".venv/bin/debug-server", "purge", "--yes")
    assert status == 0, errors
    checkout.check_nothing_left(mark)

    checkout.make_ready()
    checkout.leave_behind(mark)
    program = checkout.root / ".venv/bin/debug-server"
    program.rename(checkout.root / "program")
    status, _, errors = checkout.run("make", "-s", "clean")
    assert status and "make setup" in errors and checkout.data.exists(), "nobody else could end what runs"
    (checkout.root / "program").rename(program)
    status, _, errors = checkout.run("make", "-s", "clean")
    assert status == 0, errors
    checkout.check_nothing_left(mark)
    left = {path.name for path in checkout.root.iterdir()}
    assert left == {"Makefile", "home", "package", "remote", "scripts", "wheels"}
    assert list((checkout.root / "package").iterdir()) == []
    assert checkout.run("make", "-s", "clean")[0] == 0
