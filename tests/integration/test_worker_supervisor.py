"""The runner as its users know it: the documented example, the supervisor's two command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from debug_server.config import load_runner
from debug_server.model import ArtifactKind, CommandStatus, ExitReason, SessionPlan
from debug_server.runner import CommandSpec, EnvironmentRequest, RunnerSettings, SessionPatch, WorkerSupervisor
from debug_server.runner.supervisor import PatchApplicationError
from debug_server.store import MetadataStore, open_store
from debug_server.worktrees import WorktreePool, WorktreePoolSettings
from tests.running import ROOT, read_log
from tests.worktrees.places import Remote, make_remote

pytestmark = pytest.mark.usefixtures("nothing_left")

TOML = """
[paths]
artifacts = "artifacts"
[runner]
default_shell = "/bin/sh"
kill_grace = 0.2
"""
PATCH = """\
--- a/answer.py
+++ b/answer.py
@@ -1 +1 @@
-ANSWER = 41
+ANSWER = 42
"""


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller of the documented example holds."""

    commit: str
    owner: str
    environment_hash: str | None
    patch: str | None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with ``config/runner.toml`` and no other configuration."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "runner.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    for name in ("DEBUG_SERVER_DB_URL", "DEBUG_SERVER_PATHS_ARTIFACTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    load_runner().notes(os.environ)  # said already which place is taken
    return tmp_path


@pytest.fixture
def metadata_store(place: Path) -> Iterator[MetadataStore]:
    with open_store("sqlite:///artifacts/data/metadata.db") as store:
        yield store


@pytest.fixture
def remote(place: Path) -> Remote:
    made = make_remote(place / "remote")
    test = "from answer import ANSWER\n\n\ndef test_answer():\n    assert ANSWER == 42\n"
    made.commit({"answer.py": "ANSWER = 41\n", "test_answer.py": test, "requirements.txt": ""})
    return made


@pytest.fixture
def worktree_pool(place: Path, metadata_store: MetadataStore, remote: Remote) -> WorktreePool:
    repository = metadata_store.repositories.create(name="example", remote_url=str(remote.path), default_branch="main")
    return WorktreePool(
        metadata_store,
        WorktreePoolSettings(
            repository_id=repository.id,
            remote_url=str(remote.path),
            bare_path=place / "repos" / "example.bare",
            worktree_root=place / "worktrees",
        ),
    )


def _with_pytest() -> dict[str, str]:
    """A base environment in which the example's ``pytest`` is found."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


@pytest.mark.parametrize("environments", [True, False], ids=["environments", "none"])
def test_the_documented_example(
    metadata_store: MetadataStore, worktree_pool: WorktreePool, remote: Remote, environments: bool
) -> None:
    """The example of docs/runner.md, names unchanged: lease, patch, environment, run, result, row, log artifact."""
    session = metadata_store.sessions.create(commit_sha=remote.commits[0])
    request = Request(commit=remote.commits[0], owner="agent", environment_hash="abc", patch=PATCH)

    settings = RunnerSettings.from_toml(Path("config/runner.toml"))
    if environments:
        supervisor = WorkerSupervisor.from_settings(
            metadata_store=metadata_store,
            settings=settings,
            base_env=_with_pytest(),
        )
    else:
        supervisor = WorkerSupervisor(
            metadata_store=metadata_store,
            paths=settings.paths,
            environment_manager=None,
            base_env=_with_pytest(),
        )

    lease = worktree_pool.acquire_worktree(
        commit_sha=request.commit,
        owner=request.owner,
        environment_hash=request.environment_hash,
    )

    patch = SessionPatch(diff=request.patch) if request.patch else None
    env_request = EnvironmentRequest(
        name=f"session-{session.id}",
        manifests=[lease.path / "requirements.txt"],
    )
    heard = bytearray()
    with supervisor, lease:
        result = supervisor.run_command(
            session_id=session.id,
            spec=CommandSpec(argv=["pytest", "-q"], log_name="pytest"),
            lease=lease,
            env_request=env_request,
            patch=patch,
            stream_observers=[lambda chunk: heard.extend(chunk.data)],
        )

    assert (result.status, result.exit_code) == (CommandStatus.SUCCEEDED, 0)
    assert b"1 passed" in read_log(result.log_path)["stdout"]
    assert b"1 passed" in heard
    assert result.log_path.name == f"pytest-{result.command_id}.log"
    assert result.log_path.parent.name == str(session.id)
    row = metadata_store.commands.get(result.command_id)
    assert (row.status, row.exit_reason) == (CommandStatus.SUCCEEDED, ExitReason.EXITED)
    artifacts = metadata_store.artifacts.in_session(session.id)
    assert [item.kind for item in artifacts if item.command_id == result.command_id] == [ArtifactKind.LOG]


def test_a_patch_that_does_not_apply(
    metadata_store: MetadataStore, worktree_pool: WorktreePool, remote: Remote
) -> None:
    """PatchApplicationError, a row that ended as patch_failed, and nothing was run."""
    session = metadata_store.sessions.create(commit_sha=remote.commits[0])
    settings = RunnerSettings.from_toml(Path("config/runner.toml"))
    with (
        WorkerSupervisor(metadata_store=metadata_store, paths=settings.paths, environment_manager=None) as supervisor,
        worktree_pool.acquire_worktree(commit_sha="main", owner="agent", environment_hash=None) as lease,
    ):
        with pytest.raises(PatchApplicationError, match=r"answer\.py"):
            supervisor.run_command(
                session.id,
                CommandSpec(["touch", "ran"]),
                lease,
                patch=SessionPatch(diff=PATCH.replace("41", "40")),
            )
        assert not (lease.path / "ran").exists()
    (row,) = metadata_store.commands.in_session(session.id)
    assert (row.status, row.exit_reason) == (CommandStatus.FAILED, ExitReason.PATCH_FAILED)


def _supervisor(place: Path, *arguments: str, status: int = 0) -> tuple[bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "debug_server.runner.supervisor", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_a_session_is_worked_off_in_order(place: Path, metadata_store: MetadataStore) -> None:
    """``--session ID``: the waiting commands in order, streamed, one more by --command, nothing of ours on stdout."""
    session = metadata_store.sessions.create(plan=SessionPlan(directory=str(place)))
    for text in ("echo one", "echo two; echo aside >&2", "echo three"):
        metadata_store.commands.add(session_id=session.id, argv=["sh", "-c", text])
    said, aside = _supervisor(place, "--session", str(session.id), "--command", "echo four")
    assert said == b"one\ntwo\nthree\nfour\n"
    results = [line for line in aside.splitlines() if line.startswith(b"[debug-server] exited: ")]
    assert len(results) == 4 and b"aside" in aside.splitlines()
    assert {row.status for row in metadata_store.commands.in_session(session.id)} == {CommandStatus.SUCCEEDED}


def test_a_session_with_nothing_to_do(place: Path, metadata_store: MetadataStore) -> None:
    """Status 0, and not a word."""
    session = metadata_store.sessions.create(plan=SessionPlan(directory=str(place)))
    assert _supervisor(place, "--session", str(session.id)) == (b"", b"")


def test_the_first_failure_is_the_status(place: Path, metadata_store: MetadataStore) -> None:
    """Everything is run; the status is that of the first command that did not succeed."""
    session = metadata_store.sessions.create(plan=SessionPlan(directory=str(place)))
    for text in ("true", "exit 7", "exit 8", "touch last"):
        metadata_store.commands.add(session_id=session.id, argv=["sh", "-c", text])
    _supervisor(place, "--session", str(session.id), status=7)
    assert (place / "last").exists()


def test_a_program_that_cannot_be_started(place: Path, metadata_store: MetadataStore) -> None:
    """127, and one line that names it."""
    session = metadata_store.sessions.create(plan=SessionPlan(directory=str(place)))
    metadata_store.commands.add(session_id=session.id, argv=["no-such-program"])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "debug_server.runner.supervisor", "--session", str(session.id)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 127
    assert len(done.stderr.splitlines()) == 1 and b"no-such-program" in done.stderr


@pytest.mark.parametrize("name", ["12345", "twelve"])
def test_an_unknown_session(place: Path, name: str) -> None:
    """One line that names it, status 2."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "debug_server.runner.supervisor", "--session", name],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and name.encode() in done.stderr
    assert done.stdout == b""


def test_a_dry_run_prints_the_plan_and_starts_nothing(place: Path) -> None:
    """argv, cwd, environment, limits and log path on stdout; no log, no row, no process."""
    config = place / "config" / "runner.toml"
    config.write_text(f"{TOML}[limits]\nmemory = '64M'\ntimeout = 9.0\n")
    plan = _supervisor(place, "--dry-run", "--command", "pytest; touch ran")[0].decode()
    assert "argv         /bin/sh -c 'pytest; touch ran'" in plan
    assert f"cwd          {place}" in plan
    assert "memory_bytes = 67108864 by " in plan and "wall_seconds = 9.0 by keeper" in plan
    assert f"log          {place}/artifacts/logs/" in plan
    assert "env          PATH=" in plan
    assert not (place / "ran").exists()
    assert not (place / "artifacts" / "logs").exists()


def test_a_dry_run_makes_nothing(place: Path) -> None:
    """Not even a store."""
    before = sorted(place.rglob("*"))
    _supervisor(place, "--dry-run", "--command", "pytest")
    assert sorted(place.rglob("*")) == before


def test_a_dry_run_needs_a_command(place: Path) -> None:
    """One line, status 2."""
    for arguments in (["--dry-run"], []):
        said, aside = _supervisor(place, *arguments, status=2)
        assert said == b"" and len(aside.splitlines()) == 1
