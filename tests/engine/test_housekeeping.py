"""What must happen although nobody asks, whatever goes wrong with one of many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from debug_server.disk.ownership import Owner
from debug_server.engine import LocalEngine, Sessions
from debug_server.engine.housekeeping import Housekeeper
from debug_server.engine.maintenance import Maintenance
from debug_server.errors import StillRunningError
from debug_server.model import ArtifactKind, BranchWorktreePlan, Session, SessionPlan, SessionStatus
from debug_server.runner.spec import CommandSpec
from debug_server.store import MetadataStore
from tests.running import Bench, Workspace, eventually


def test_files_of_a_command_whose_server_died_are_kept(bench: Bench) -> None:
    """The command has its end and its server died before it looked for artifacts: the next one does, once."""
    spec = CommandSpec(["sh", "-c", "echo result > out.txt"])
    place = Workspace(bench.workspace)
    bench.supervisor.run_command(bench.session.id, spec, place, artifacts=["*.txt"])
    for _ in range(2):
        engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
        engine.start()
        engine.stop()
        (artifact,) = bench.store.artifacts.in_session(bench.session.id, kind=ArtifactKind.CUSTOM)
        assert artifact.name == "out.txt" and Path(artifact.path).read_text() == "result\n"
        (bench.workspace / "later.txt").touch()  # not that command's any more


def _stuck(store: MetadataStore, plan: SessionPlan | None = None) -> Session:
    """A session with a lease of a repository whose settings cannot be used: it can be neither used nor closed."""
    broken = store.repositories.create("broken", "/nowhere", settings={"max_worktrees": "many"})
    row = store.worktrees.add(broken.id, "/nowhere/wt", "pool")
    soon = datetime.now(UTC) + timedelta(hours=1)
    leased = store.worktrees.lease(
        worktree_id=row.id, owner="x", lease_token="t", commit_sha="c", environment_hash=None, expires_at=soon
    )
    assert leased is not None
    return store.sessions.create(
        repository_id=broken.id, worktree_id=row.id, lease_generation=leased.generation, plan=plan
    )


def test_one_session_s_trouble_is_not_the_others(bench: Bench) -> None:
    """A session of a repository with settings that cannot be used does not keep a later one from its end."""
    store = bench.store
    stuck = _stuck(store)
    expired = store.sessions.create(expires_at=datetime.now(UTC))
    sessions = Sessions.of(store, bench.settings)
    engine = LocalEngine(store=store, supervisor=bench.supervisor, sessions=sessions)
    keeper = Housekeeper(
        store=store, sessions=sessions, supervisor=bench.supervisor, cancel=engine.cancel, wait=engine.wait
    )
    assert keeper.check_sessions() == [expired.id]
    assert store.sessions.get(stuck.id).status is SessionStatus.PENDING


def test_no_session_keeps_a_server_from_starting(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A row that nobody can make sense of is logged: the engine starts, and the sessions after it have what is due."""
    store, owner = bench.store, Owner(bench.settings.paths.owners_dir)
    owner.close()
    broken = _stuck(store, SessionPlan(process=owner.name))
    tree = BranchWorktreePlan(repository="/", path="\0", branch="x", cleanup=True)
    odd = store.sessions.create(plan=SessionPlan(branch_tree=tree))
    for session in (broken, odd, bench.session):
        bench.supervisor.run_command(
            session.id, CommandSpec(["touch", "out.txt"]), Workspace(bench.workspace), artifacts=["*.txt"]
        )
    abandoned = store.sessions.create(plan=SessionPlan(process=owner.name))
    engine = LocalEngine(store=store, supervisor=bench.supervisor)
    engine.start()
    engine.stop()
    assert store.sessions.get(abandoned.id).status is SessionStatus.FAILED
    assert [item.name for item in store.artifacts.in_session(bench.session.id, kind=ArtifactKind.CUSTOM)] == ["out.txt"]
    assert {"close_abandoned_failed", "artifacts_lost"} <= {record.getMessage() for record in caplog.records}


def test_maintenance_goes_on_after_a_repository_that_cannot_be_used(bench: Bench) -> None:
    """Settings that nobody can use, of a repository with workspaces, do not end the thread that takes leases back."""
    broken = bench.store.repositories.create("broken", "/nowhere", settings={"max_worktrees": "many"})
    bench.store.worktrees.add(broken.id, "/nowhere/wt", "pool")
    sessions = Sessions.of(bench.store, bench.settings)
    maintenance = Maintenance(store=bench.store, sessions=sessions, supervisor=bench.supervisor)
    maintenance.recover_leases()
    maintenance.collect()


def test_a_session_whose_command_still_runs_is_not_closed(make_bench: Callable[..., Bench]) -> None:
    """The command takes longer to end than the close waits: session and workspace stay, and a later close ends it."""
    bench = make_bench(kill_grace=1000.0)
    sessions = Sessions.of(bench.store, bench.settings)
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor, sessions=sessions)
    engine.start()
    keeper = Housekeeper(
        store=bench.store, sessions=sessions, supervisor=bench.supervisor, cancel=engine.cancel, wait=engine.wait
    )
    text = "trap 'until [ -e go ]; do sleep 0.02; done; exit' TERM; touch ready; while :; do sleep 0.02; done"
    command = engine.submit(session_id=bench.session.id, spec=CommandSpec(["sh", "-c", text]))
    eventually((bench.workspace / "ready").exists, what="a command that takes its time to end")
    patience, keeper._close_seconds = keeper._close_seconds, 0.0
    with pytest.raises(StillRunningError, match="still running"):
        keeper.close(bench.session, SessionStatus.COMPLETED)
    assert bench.store.sessions.get(bench.session.id).is_open
    (bench.workspace / "go").touch()
    keeper._close_seconds = patience
    keeper.close(bench.session, SessionStatus.COMPLETED)
    assert bench.store.sessions.get(bench.session.id).status is SessionStatus.COMPLETED
    assert bench.store.commands.get(command.id).status.terminal
    engine.stop()
