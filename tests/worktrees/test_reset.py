"""Reset, fork and reclaim: all or nothing, promptly, within the budget."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from debug_server.errors import CapacityExhaustedError, NotFoundError, PatchApplicationError
from debug_server.worktrees import SessionPatch, WorktreePool
from debug_server.worktrees.patches import load_patch, store_patch
from tests.running import eventually
from tests.worktrees.conftest import MakePool
from tests.worktrees.places import Remote, fingerprint, is_empty

BAD = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-nothing like it\n+x\n"


def test_a_failed_reset_leaves_the_workspace_as_it_was(pool: WorktreePool, remote: Remote) -> None:
    """When the patch does not apply the holder's files are all still there, and a good reset works afterwards."""
    with pool.acquire_worktree(commit_sha=remote.commits[1], owner="t", environment_hash=None) as lease:
        (lease.path / "README").write_text("mine\n")
        (lease.path / "more").write_text("more\n")
        before = fingerprint(lease.path)
        with pytest.raises(PatchApplicationError):
            lease.reset(SessionPatch(BAD))
        assert fingerprint(lease.path) == before
        patch = SessionPatch(lease.diff())
        lease.reset()
        assert not (lease.path / "more").exists()
        lease.reset(patch)
        assert fingerprint(lease.path) == before
        (lease.path / "more").write_text("written after the reset\n")
    state = pool.settings.state_dir
    for name in ("uppers", "aside", "trash"):
        eventually(partial(is_empty, state / name), what=name)


def test_fork_beyond_capacity_is_refused_at_once(make_pool: MakePool, remote: Remote) -> None:
    """More forks than free workspaces: told without standing in line, with the numbers, and nothing is left leased."""
    pool = make_pool(max_worktrees=3, acquire_timeout=600)
    with pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) as lease:
        with pytest.raises(CapacityExhaustedError, match="3 forks need 3 free workspaces, and 2 of the 3"):
            lease.fork(3)
        for fork in lease.fork(2):
            fork.release()
    assert {row["status"] for row in pool.describe()} == {"idle"}


def test_the_longest_idle_go_beyond_the_budget(make_pool: MakePool, remote: Remote) -> None:
    """Idle workspaces that keep files go, oldest first, until the rest fits; a leased one stays whatever it takes."""
    pool = make_pool(clean_checkout=False)
    leases = [pool.acquire_worktree(commit_sha=remote.commits[0], owner="t", environment_hash=None) for _ in range(4)]
    for lease in leases:
        (lease.path / "large").write_bytes(b"x" * 300_000)
    for lease in leases[:3]:
        lease.release()
    removed = pool.reclaim_stale_worktrees(max_idle_age=timedelta(days=1), max_bytes=900_000)
    assert removed == [lease.path for lease in leases[:2]]
    assert (leases[3].path / "large").exists()
    leases[3].release()


def test_a_kept_patch_is_checked_against_its_hash(tmp_path: Path) -> None:
    """A patch that was changed on the disk is not used, and keeping it again mends it."""
    patch = SessionPatch(BAD)
    path = store_patch(patch, tmp_path)
    assert load_patch(patch.sha256, tmp_path).data == patch.data
    path.write_text("tampered")
    with pytest.raises(NotFoundError, match="was changed"):
        load_patch(patch.sha256, tmp_path)
    store_patch(patch, tmp_path)
    assert load_patch(patch.sha256, tmp_path).data == patch.data
    path.unlink()
    with pytest.raises(NotFoundError, match="cannot be read"):
        load_patch(patch.sha256, tmp_path)
