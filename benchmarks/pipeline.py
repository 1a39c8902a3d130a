"""The whole way: warm repository, commit, patch and environment to the first line of pytest's output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.environments import PlainUv
from benchmarks.figures import Figure, Result, Samples, Size, Skipped, added, at_most, interleaved, milliseconds
from benchmarks.packages import PYTEST, requirements
from benchmarks.repository import Amounts, generate, git
from debug_server.errors import EnvironmentBuildError
from debug_server.model import LogChunk
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.uv_builder import find_uv
from debug_server.runner.settings import RunnerPaths
from debug_server.runner.spec import CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import open_store
from debug_server.worktrees import SessionPatch, WorktreeLease, WorktreePool, WorktreePoolSettings

_ROUNDS = {Size.FULL: 40, Size.QUICK: 5, Size.SMALLEST: 1}
_REPOSITORIES = {
    Size.FULL: Amounts(files=7000, commits=300),
    Size.QUICK: Amounts(files=7000, commits=300),
    Size.SMALLEST: Amounts(files=40, commits=8),
}
_ENVIRONMENT = {"PATH": os.environ["PATH"]}  # none of the caller's Python settings on either side
_TEST = "def test_sum():\n    assert 1 + 1 == 2\n"
_ARGUMENTS = ["-p", "no:cacheprovider", "tests"]


def measure(size: Size) -> list[Result]:
    """Time to the first line beyond what pytest itself needs for it."""
    if (uv := find_uv()) is None:
        return [Skipped(name="first_line_added_p50", reason="uv is not installed")]
    with tempfile.TemporaryDirectory(prefix="debug-server-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        extra = {"requirements.txt": requirements(PYTEST), "tests/test_sum.py": _TEST}
        commits = generate(folder / "remote", _REPOSITORIES[size], extra)
        plain = _Plain(folder, uv)
        try:
            fresh = _Ours(folder, commits[-1], stack, compiled=False)
            compiled = _Ours(folder, commits[-1], stack, compiled=True)
        except EnvironmentBuildError as error:
            return [Skipped(name="first_line_added_p50", reason=f"pytest cannot be installed here: {error}")]
        found = interleaved(fresh.first_line, compiled.first_line, plain.first_line, rounds=_ROUNDS[size], warm_up=2)
    return _figures(*found)


def _figures(fresh: Samples, compiled: Samples, pytest: Samples) -> list[Result]:
    """A warm environment is compiled: that is done beside the first command that needed it."""
    facts = compiled.facts("ours") | pytest.facts("pytest")
    return [
        Figure(
            name="first_line_added_p50",
            value=milliseconds(added(compiled, pytest).p50),
            unit="ms",
            bar=at_most(150),
            facts=facts,
        ),
        Figure(
            name="first_line_added_p50_before_it_is_compiled",
            value=milliseconds(added(fresh, pytest).p50),
            unit="ms",
            facts=fresh.facts("ours"),
        ),
    ]


class _Plain:
    """pytest in a plain checkout and a plain virtual environment, both used before."""

    def __init__(self, folder: Path, uv: str) -> None:
        self._checkout = folder / "remote"
        venv = PlainUv(uv, folder, self._checkout / "requirements.txt")
        venv.build()
        self._argv = [str(venv.target / "bin" / "pytest"), *_ARGUMENTS]

    def first_line(self) -> float:
        """Seconds from the start of the process."""
        began = time.perf_counter()
        with subprocess.Popen(
            self._argv, cwd=self._checkout, env=_ENVIRONMENT, stdout=subprocess.PIPE, bufsize=0
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            seconds = time.perf_counter() - began
            child.stdout.read()
        return seconds


class _FirstLine:
    """A stream observer that notes when the first output of the command came."""

    def __init__(self) -> None:
        self.at = 0.0
        self.came = threading.Event()

    def __call__(self, chunk: LogChunk) -> None:
        """What the preparing stages say is not the command's output."""
        if chunk.stream == "stdout" and not self.at:
            self.at = time.perf_counter()
            self.came.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    pool: WorktreePool
    supervisor: WorkerSupervisor
    environments: EnvironmentManager
    session_id: int


class _Ours:
    """A request of commit, patch and manifest, served from what is warm."""

    def __init__(self, folder: Path, commit: str, stack: ExitStack, *, compiled: bool) -> None:
        self._commit = commit
        self._variant = "compiled" if compiled else "as built"
        self._parts = _open(folder, f"ours-{compiled:d}", stack)
        with self._lease() as lease:
            test = lease.path / "tests" / "test_sum.py"
            test.write_text(_TEST + "\n\ndef test_patched():\n    assert True\n")
            self._patch = SessionPatch(git("diff", cwd=lease.path))
            request = self._request(lease)
            handle = self._parts.environments.ensure(request)
            if compiled:
                self._parts.environments.compile_bytecode(handle)

    def _lease(self) -> WorktreeLease:
        return self._parts.pool.acquire_worktree(commit_sha=self._commit, owner="bench", environment_hash=None)

    def _request(self, lease: WorktreeLease) -> EnvironmentRequest:
        metadata = {"python": sys.executable, "variant": self._variant}
        return EnvironmentRequest("bench", [lease.path / "requirements.txt"], metadata, project_root=lease.path)

    def first_line(self) -> float:
        """Seconds from the request."""
        heard = _FirstLine()
        began = time.perf_counter()
        with self._lease() as lease:
            self._parts.supervisor.run_command(
                self._parts.session_id,
                CommandSpec(["pytest", *_ARGUMENTS]),
                lease,
                env_request=self._request(lease),
                patch=self._patch,
                stream_observers=[heard],
            )
        if not heard.came.wait(60.0):
            raise TimeoutError("pytest's output was not heard within 60 s of its end")
        return heard.at - began


def _open(folder: Path, name: str, stack: ExitStack) -> _Parts:
    paths = RunnerPaths.from_root(folder / name)
    store = stack.enter_context(open_store(f"sqlite:///{folder}/{name}.db"))
    environments = EnvironmentManager(paths.environments_dir)
    supervisor = WorkerSupervisor(
        metadata_store=store, paths=paths, environment_manager=environments, base_env=_ENVIRONMENT
    )
    stack.enter_context(supervisor)
    repository = store.repositories.create(name=name, remote_url=str(folder / "remote"))
    settings = WorktreePoolSettings(
        repository_id=repository.id,
        remote_url=str(folder / "remote"),
        bare_path=folder / f"{name}.git",
        worktree_root=folder / f"{name}-trees",
    )
    return _Parts(
        pool=WorktreePool(store, settings),
        supervisor=supervisor,
        environments=environments,
        session_id=store.sessions.create().id,
    )
