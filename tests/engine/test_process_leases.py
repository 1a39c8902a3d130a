"""A lease ends with the process that holds it, unless an open session goes on with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.engine.maintenance import Maintenance
from debug_server.errors import CapacityExhaustedError
from debug_server.model import CommandStatus, SessionStatus, Worktree, WorktreeStatus
from tests.engine.engines import open_local
from tests.running import ROOT, eventually
from tests.servers import unmount_below
from tests.worktrees.places import Remote, make_remote

Hold = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    """A repository with one commit; what the test left mounted is unmounted."""
    remote = make_remote(tmp_path / "remote")
    remote.commit({"note": "one\n"})
    yield remote
    unmount_below(tmp_path)


@pytest.fixture
def hold(tmp_path: Path, remote: Remote) -> Iterator[Hold]:
    """Starts a process that holds a lease in the way that is named."""
    started = []

    def start(way: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "tests.engine.holder_program", str(tmp_path), str(remote.path), way]
        process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _leased(local: Local) -> list[Worktree]:
    return [row for row in local.store.worktrees.page() if row.status is not WorktreeStatus.IDLE]


@contextmanager
def _serving(tmp_path: Path) -> Iterator[Local]:
    """The next server, as far as leases are concerned."""
    with open_local(tmp_path) as local:
        local.engine.start()
        try:
            yield local
        finally:
            local.engine.stop()


def _recover(local: Local) -> None:
    Maintenance(store=local.store, sessions=local.sessions, supervisor=local.supervisor).recover_leases()


@pytest.mark.parametrize(("way", "sessions"), [("lease", 0), ("fork", 1), ("run", 0), ("start run", 0)])
def test_the_next_server_frees_what_a_killed_process_held(
    tmp_path: Path, hold: Hold, caplog: pytest.LogCaptureFixture, way: str, sessions: int
) -> None:
    """Leased, forked, run in or about to be: the workspace is free as soon as the next server has started, which logs
    everything."""
    caplog.set_level("DEBUG")
    _kill(hold(way))
    with _serving(tmp_path) as local:
        eventually(lambda: len(_leased(local)) == sessions, what="the end of the dead process's lease")
        named = {row.worktree_id for row in local.sessions.open_sessions()}
        assert {row.id for row in _leased(local)} == named


def test_an_open_session_keeps_its_lease(tmp_path: Path, hold: Hold) -> None:
    """The session of a killed server goes on in the same workspace; closing it frees the workspace."""
    _kill(hold("session"))
    with open_local(tmp_path) as local:
        (session,) = local.sessions.open_sessions()
        before = local.store.worktrees.get(session.worktree_id or 0)
        _recover(local)
        local.sessions.lease(session).renew()
        assert local.store.worktrees.get(before.id).generation == before.generation
        local.sessions.close(session)
        assert _leased(local) == []


def test_an_adopted_command_keeps_its_workspace(tmp_path: Path, hold: Hold) -> None:
    """A command that outlives its server runs on in its workspace, which is free once its session was closed."""
    process = hold("command")
    with open_local(tmp_path) as local:
        (session,) = local.sessions.open_sessions()
        eventually((local.sessions.lease(session).path / "started").exists, what="the command")
        _kill(process)
        _recover(local)
        assert [row.id for row in _leased(local)] == [session.worktree_id]
        (command,) = local.store.commands.in_session(session.id)
        assert local.engine.start() == [command.id]
        local.engine.close_session(session, SessionStatus.CANCELLED)
        assert local.store.commands.get(command.id).status is CommandStatus.CANCELLED
        assert _leased(local) == []
        local.engine.stop()


def test_without_a_server_the_next_process_leases_it(tmp_path: Path, remote: Remote, hold: Hold) -> None:
    """With one workspace only: a live process keeps it, and the first one to ask after its death has it at once."""
    process = hold("lease")
    for alive in (True, False):
        with open_local(tmp_path, max_worktrees=1) as local:
            repository = local.sessions.register_reachable(str(remote.path))
            if alive:
                with pytest.raises(CapacityExhaustedError):
                    local.sessions.open(repository, commit="main", owner="y", timeout=0)
                _kill(process)
            else:
                local.sessions.close(local.sessions.open(repository, commit="main", owner="y", timeout=0))
                assert len(local.store.worktrees.page()) == 1


def test_other_processes_leases_end_by_their_time(tmp_path: Path, remote: Remote) -> None:
    """A lease without a process (of an older version), or of a process of another machine, is left to its time."""
    with open_local(tmp_path) as local:
        repository = local.sessions.register_reachable(str(remote.path))
        pool = local.sessions.pool(repository)
        for number, process in enumerate((None, "another-folder.1-2")):
            row = local.store.worktrees.add(repository.id, str(pool.settings.worktree_root / f"wt-{number}"), "pool")
            assert local.store.worktrees.lease(
                worktree_id=row.id,
                owner="x",
                lease_token=f"t{number}",
                commit_sha="c",
                environment_hash=None,
                expires_at=datetime.now(UTC) + timedelta(hours=1),
                process=process,
            )
        before = _leased(local)
        _recover(local)
        assert _leased(local) == before and len(before) == 2
