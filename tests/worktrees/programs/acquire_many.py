"""Acquires and releases from many threads; fails if a workspace ever has two holders."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from tests.worktrees.places import open_pool

base, remote, backend, threads, marks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
commits = sys.argv[6:]
pool = open_pool(base, remote, backend, max_worktrees=6, acquire_timeout=240)
failures: list[str] = []


def hold(number: int) -> None:
    commit = commits[number % len(commits)]
    try:
        with pool.acquire_worktree(commit_sha=commit, owner=f"{os.getpid()}-{number}", environment_hash=None) as lease:
            mark = Path(marks) / lease.path.name
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails if somebody else is here
            if (lease.path / "mine").exists():
                failures.append("the workspace was not clean")
            (lease.path / "mine").write_text("x")
            mark.unlink()
        with open(Path(marks).with_name("served"), "a") as served:
            served.write("x")
    except Exception as error:  # noqa: BLE001  a thread's failure must reach the parent
        failures.append(repr(error))


workers = [threading.Thread(target=hold, args=(number,)) for number in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
sys.exit("; ".join(failures[:5]) if failures else 0)
