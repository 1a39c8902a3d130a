"""What keeps the disk in order although nobody asks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.config import EnvironmentsConfig, WorkspacesConfig
from debug_server.engine.maintenance import Maintenance
from debug_server.model import SessionPlan
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.runner.environment_support import environments, hook
from tests.running import eventually
from tests.servers import unmount_below
from tests.worktrees.places import Remote, make_remote


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    """A repository with one commit."""
    remote = make_remote(tmp_path / "remote")
    remote.commit({"note": "one\n"})
    return remote


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A machine on which everything is old at once."""
    settings = RunnerSettings(
        RunnerPaths.from_root(tmp_path / "artifacts"),
        workspaces=WorkspacesConfig(
            lease_ttl_seconds=0.05, idle_seconds=0.01, refresh_seconds=0.01, repack_seconds=0.01
        ),
        environments=EnvironmentsConfig(idle_seconds=3600, verify_seconds=0.01),
    )
    with Local(settings, str(tmp_path / "store.db")) as local:
        yield local
    unmount_below(tmp_path)


@contextmanager
def _unwritable(folder: Path) -> Iterator[None]:
    """Nothing in the folder can be removed."""
    if os.geteuid() != 0:
        folder.chmod(0o500)
        yield
        folder.chmod(0o700)
        return
    for options in (["--bind"], ["-o", "remount,bind,ro"]):
        done = subprocess.run(["mount", *options, folder, folder], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _cleaned(local: Local, session_id: int) -> bool | None:
    cleanup = local.store.sessions.get(session_id).cleanup
    return None if cleanup is None else cleanup.succeeded


def test_a_scratch_folder_that_resisted_goes_later(local: Local) -> None:
    """Maintenance removes what could not be removed when its session closed, and the session's row says so; the folder
    of an open session, and one of no session, stay."""
    resisting, in_use = (local.store.sessions.create(plan=SessionPlan(scratch=True)) for _ in range(2))
    for session in (resisting, in_use):
        local.sessions.prepare(session)
    folders = [local.sessions.workspace(session).path for session in (resisting, in_use)]
    scratch = folders[0].parent
    unknown = scratch / "4711"
    unknown.mkdir()
    maintenance = Maintenance(store=local.store, sessions=local.sessions, supervisor=local.supervisor)
    with _unwritable(scratch):
        closed = local.sessions.close(resisting)
        maintenance.collect()
        assert closed.cleanup is not None and not closed.cleanup.succeeded and folders[0].exists()
        assert _cleaned(local, resisting.id) is False
    maintenance.collect()
    assert [path.exists() for path in (*folders, unknown)] == [False, True, True]
    assert _cleaned(local, resisting.id) is True


def test_expired_leases_come_back_without_an_acquirer(local: Local, remote: Remote) -> None:
    """A lease that nobody renews is taken back, and its workspace removed, by the maintenance thread alone."""
    repository = local.sessions.register_reachable(str(remote.path))
    pool = local.sessions.pool(repository)
    lease = pool.acquire_worktree(commit_sha="main", owner="gone", environment_hash=None)
    maintenance = Maintenance(store=local.store, sessions=local.sessions, supervisor=local.supervisor)

    def taken_back() -> bool:
        maintenance.recover_leases()
        return [row["status"] for row in pool.describe()] == ["idle"]

    eventually(taken_back, what="the end of the lease's time")
    fetched = remote.commit({"note": "two\n"})

    def removed() -> bool:
        maintenance.collect()
        return not lease.path.exists()

    eventually(removed, what="a workspace that was idle for long enough")
    assert pool.mirror.ancestors(fetched)[0] == fetched


def test_damaged_environments_are_found_and_used_ones_stay(local: Local, tmp_path: Path) -> None:
    """Maintenance withdraws an environment with a changed file; one in use outlives any budget."""
    manager = local.supervisor.environments
    assert manager is not None
    bad = manager.ensure(hook("echo x > $DEBUG_SERVER_ENV_PATH/file", name="bad", root=tmp_path))
    good = manager.ensure(hook("echo y > $DEBUG_SERVER_ENV_PATH/file", name="good", root=tmp_path))
    (bad.path / "file").write_text("tampered")
    maintenance = Maintenance(store=local.store, sessions=local.sessions, supervisor=local.supervisor)

    def withdrawn() -> bool:
        maintenance.collect()
        return [item.fingerprint for item in manager.installed()] == [good.fingerprint]

    eventually(withdrawn, what="the check of every environment")
    with good.hold():
        (item,) = manager.installed()
        assert item.in_use and item.names == ("good",)
        manager.collect_garbage(max_idle=0, max_bytes=0, grace=0)
        assert environments(manager) == [good.path.name]
    good.assign(os.getpid())
    manager.collect_garbage(max_idle=0, max_bytes=0, grace=0)
    assert environments(manager) == [good.path.name]
