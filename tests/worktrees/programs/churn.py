"""Acquires and releases commits in turn until it is killed."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from tests.worktrees.places import open_pool

base, remote, backend, *commits = sys.argv[1:]
pool = open_pool(Path(base), Path(remote), backend)
for number, commit in enumerate(itertools.cycle(commits)):
    with pool.acquire_worktree(commit_sha=commit, owner="victim", environment_hash=None) as lease:
        (lease.path / "left").write_text("x")
        if number == 0:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
