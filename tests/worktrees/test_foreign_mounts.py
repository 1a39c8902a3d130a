"""What a holder mounts or locks in its workspace costs nobody anything: not the host's data, not the workspace."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from debug_server.disk import kernel, list_mounts
from debug_server.model import WorktreeStatus
from debug_server.worktrees import WorktreeLease, WorktreePool
from tests.running import eventually
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting and chattr need root")


@pytest.fixture
def host(base: Path) -> Path:
    """Somebody's data outside the workspaces."""
    path = base / "host"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "precious").write_text("data")
    return path


def whole(host: Path) -> bool:
    return (host / "sub" / "precious").read_text() == "data"


def lease_of(pool: WorktreePool, remote: Remote) -> WorktreeLease:
    return pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None)


def bind(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", source, target], check=True)


def nothing_waits(pool: WorktreePool) -> None:
    """Wait until the background has cleaned and deleted everything."""
    state = pool.settings.state_dir
    eventually(lambda: not any((state / "trash").iterdir()), what="an empty trash")
    if (state / "spares").is_dir():
        eventually(lambda: all((spare / "git" / "clean").exists() for spare in (state / "spares").iterdir()))


def test_a_bind_mount_in_the_workspace(pool: WorktreePool, remote: Remote, host: Path) -> None:
    """Released, reset and removed: the host's data stays, the next holder sees nothing of it."""
    lease = lease_of(pool, remote)
    bind(host, lease.path / "m")
    bind(host, lease.path / "docs")  # over a tracked folder
    lease.reset()
    bind(host, lease.path / "m")
    bind(host, lease.path / ".git" / "m")
    lease.release()
    nothing_waits(pool)
    assert whole(host)
    with lease_of(pool, remote) as again:
        assert not (again.path / "m").exists()
        assert (again.path / "docs" / "guide.txt").read_text() == "guide\n"
        bind(host, again.path / "m")
    nothing_waits(pool)
    assert whole(host) and not [mount for mount in list_mounts(pool.settings.worktree_root) if mount.kind != "overlay"]


@pytest.mark.parametrize("attribute", ["+i", "+a"])
def test_attributes_on_the_workspace(pool: WorktreePool, remote: Remote, attribute: str) -> None:
    """``chattr +i .`` and ``+a`` keep neither the lease nor the place."""
    lease = lease_of(pool, remote)
    (lease.path / "sub").mkdir()
    (lease.path / "sub" / "file").write_text("x")
    for path in (lease.path / "sub" / "file", lease.path / "sub", lease.path):
        if subprocess.run(["chattr", attribute, path], capture_output=True, check=False).returncode:
            pytest.skip("this file system has no attributes")
    lease.release()
    nothing_waits(pool)
    assert [row["status"] for row in pool.describe()] == ["idle"]
    with lease_of(pool, remote) as again:
        assert not (again.path / "sub").exists()
        (again.path / "README").write_text("writable")


def test_a_tmpfs_over_the_workspace(pool: WorktreePool, remote: Remote) -> None:
    """A file system over the workspace goes with the lease."""
    lease = lease_of(pool, remote)
    for place in (lease.path, lease.path):
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    (lease.path / "file").write_text("x")
    lease.release()
    nothing_waits(pool)
    with lease_of(pool, remote) as again:
        assert (again.path / "README").read_text() == "one\n" and not (again.path / "file").exists()


def test_what_cannot_be_taken_away_is_set_aside(
    make_pool: MakePool,
    remote: Remote,
    host: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A mount that stays costs one directory, not the workspace: the lease ends, it is told, and tried again later."""
    pool = make_pool(max_worktrees=1)
    lease = lease_of(pool, remote)
    bind(host, lease.path)  # over the workspace itself, which can be neither renamed nor emptied then

    def refuse(target: str) -> None:
        raise PermissionError(1, "Operation not permitted", target)

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(kernel, "detach_mount", refuse)
        lease.release()
        assert lease.left is not None and str(lease.path) in lease.left
        assert "workspace_quarantined" in caplog.messages
    (row,) = pool.describe()
    assert row["status"] == WorktreeStatus.IDLE and row["path"] != str(lease.path)
    with lease_of(pool, remote) as again:
        assert again.path != lease.path and (again.path / "README").read_text() == "one\n"
    assert whole(host)
    pool.recover()  # by now it can be unmounted
    nothing_waits(pool)
    assert not lease.path.exists() and whole(host)
