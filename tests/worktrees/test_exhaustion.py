"""git that gets no more processes: to be tried again, and no fault of the request or of the remote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.worktrees.git import GitResult
from debug_server.worktrees.mirror import Mirror
from tests.running import ROOT
from tests.worktrees.places import Remote


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user without any process")
def test_git_that_cannot_start_its_helpers(base: Path, remote: Remote) -> None:
    """Whether git itself or only its helper has no process left, the fetch is refused as resources_exhausted; later
    it works."""
    user = str(300_000 + os.getpid())
    done = subprocess.run(
        [sys.executable, "-m", "tests.worktrees.programs.few_processes", str(base), str(remote.path), user, "1", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused = json.loads(done.stdout)
    assert [name for name, _ in refused] == ["ResourcesExhaustedError"] * 2, refused
    assert all("retry later" in words for _, words in refused)
    assert Mirror(base / "repo.bare", str(remote.path)).resolve("HEAD") == remote.commits[-1]


@pytest.mark.parametrize(
    ("said", "exhausted"),
    [
        ("error: cannot fork() for git-upload-pack '/x': Resource temporarily unavailable", True),
        ("fatal: unable to create thread: Resource temporarily unavailable", True),
        ("git-upload-pack '/x': 1: Cannot fork\nfatal: Could not read from remote repository.", True),
        ("remote: fatal: unable to create thread: Resource temporarily unavailable", False),
        ("fatal: '/x/1: Cannot fork' does not appear to be a git repository", False),
        ("error: patch failed: cannot fork() for:1", False),
    ],
)
def test_what_git_says_of_it(said: str, exhausted: bool) -> None:
    """Its words for this machine's processes are known; names like them, and the other machine's trouble, are not."""
    assert GitResult(returncode=128, stdout=b"", stderr=said).exhausted is exhausted
    assert not GitResult(returncode=0, stdout=b"", stderr=said).exhausted
