"""Applies a patch to a workspace, and kills itself with SIGKILL before or after git has changed the files."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from debug_server.worktrees import SessionPatch, apply_patch, patches
from debug_server.worktrees.git import GitResult, run_git
from tests.worktrees.places import open_pool

base, remote, backend, moment, commit = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]


def deadly(*arguments: str, **named: Any) -> GitResult:
    if moment == "after":
        run_git(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


lease = open_pool(base, remote, backend).acquire_worktree(commit_sha=commit, owner="victim", environment_hash=None)
vars(patches)["run_git"] = deadly
apply_patch(lease.path, SessionPatch((base / "fix.patch").read_bytes()), patches_dir=base / "patches")
