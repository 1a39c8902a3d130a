"""Exactly one holder per workspace, however many ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.disk import list_mounts
from tests.worktrees.places import Remote, open_pool

PROCESSES, THREADS = 4, 50


@pytest.mark.timeout(300)  # hundreds of gits against each other, on a machine that may be busy
def test_two_hundred_acquirers_in_four_processes(base: Path, remote: Remote, backend: str) -> None:
    """200 acquirers in 4 processes share 6 workspaces: each is served once, never two at a time in one place."""
    pool = open_pool(base, remote, backend, max_worktrees=6)
    pool.ensure_bare_repo()
    marks = base / "marks"
    marks.mkdir()
    arguments = [str(base), str(remote.path), backend, str(THREADS), str(marks), *remote.commits[:2]]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.worktrees.programs.acquire_many", *arguments],
            cwd=Path(__file__).parents[2],
            stderr=subprocess.PIPE,
        )
        for _ in range(PROCESSES)
    ]
    try:
        said = [child.communicate(timeout=280)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0] * PROCESSES, said
    assert (base / "served").read_text() == "x" * PROCESSES * THREADS
    assert len(pool.describe()) <= 6
    assert {row["status"] for row in pool.describe()} == {"idle"}
    assert list_mounts(base) == []
    assert list((pool.settings.state_dir / "waiting").iterdir()) == []
