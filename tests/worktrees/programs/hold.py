"""Leases workspaces by the Python API until it has the number that is wanted, says so, and waits to be killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.worktrees.places import open_pool

base, remote, backend, commit, count = sys.argv[1:]
pool = open_pool(Path(base), Path(remote), backend)
leases = [pool.acquire_worktree(commit_sha=commit, owner="victim", environment_hash=None) for _ in range(int(count))]
sys.stdout.write("held\n")
sys.stdout.flush()
signal.pause()
