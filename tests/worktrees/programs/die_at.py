"""Acquires and releases, and kills itself with SIGKILL before or after the named step."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from debug_server.worktrees import WorktreePool
from tests.worktrees.places import open_pool

base, remote, backend, moment, step, commit = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]


def deadly(action: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        if moment == "after":
            action(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return call


def arm(pool: WorktreePool) -> None:
    for owner in (pool._store.worktrees, pool.backend):
        if hasattr(owner, step):
            setattr(owner, step, deadly(getattr(owner, step)))
            return
    sys.exit(f"no step {step}")


pool = open_pool(base, remote, backend)
arm(pool)
lease = pool.acquire_worktree(commit_sha=commit, owner="victim", environment_hash="e")
(lease.path / "left").write_text("x")
lease.release()
