"""The operator's command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.worktrees.inspect import parse_duration
from tests.running import SETTINGS_HERE
from tests.worktrees.places import Remote, open_pool


def run(base: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The module as users start it, with every warning an error."""
    command = [sys.executable, "-W", "error", "-m", "debug_server.worktrees.inspect", *arguments]
    return subprocess.run(
        [*command, "--database-url", f"sqlite:///{base}/store.db"],
        cwd=base,
        env={**os.environ, **SETTINGS_HERE, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_show_and_reclaim(base: Path, remote: Remote, backend: str) -> None:
    """Leased workspaces are listed with owner and commit; idle ones are reclaimed; stderr stays empty."""
    pool = open_pool(base, remote, backend)
    held = pool.acquire_worktree(commit_sha="main", owner="agent-7", environment_hash=None)
    idle = pool.acquire_worktree(commit_sha="main", owner="other", environment_hash=None)
    idle.release()
    shown = run(base, "show-active", "--repository", "repo")
    assert (shown.returncode, shown.stderr) == (0, "")
    heading, line = shown.stdout.splitlines()
    assert heading.split() == ["ID", "STATUS", "OWNER", "COMMIT", "EXPIRES", "PATH"]
    assert all(text in line for text in ("busy", "agent-7", held.commit_sha[:12], str(held.path)))
    places = ["--bare-path", str(base / "repos" / "repo.bare"), "--worktree-root", str(base / "worktrees" / "repo")]
    reclaimed = run(base, "reclaim", "--repository", "1", "--older-than", "0s", *places)
    assert (reclaimed.returncode, reclaimed.stderr) == (0, "")
    assert f"removed {idle.path}" in reclaimed.stdout
    assert not idle.path.exists()
    held.release()
    assert "no workspace of repo is leased" in run(base, "show-active", "--repository", "repo").stdout


def test_reclaim_frees_the_disk(base: Path, remote: Remote, backend: str) -> None:
    """When it returns, the files are gone, and it has said how many bytes that were."""
    remote.commit({"large": os.urandom(8 << 20)})
    pool = open_pool(base, remote, backend)
    with pool.acquire_worktree(commit_sha="main", owner="t", environment_hash=None) as lease:
        (lease.path / "more").write_bytes(os.urandom(1 << 20))
    places = ["--bare-path", str(base / "repos" / "repo.bare"), "--worktree-root", str(base / "worktrees" / "repo")]
    wanted = ["--repository", "repo", "--older-than", "0s", *places]
    reclaimed = run(base, "reclaim", *wanted, DEBUG_SERVER_WORKSPACES_BACKEND=backend)
    assert (reclaimed.returncode, reclaimed.stderr) == (0, "")
    assert pool.disk_bytes() < 1 << 20
    freed = re.search(r"1 workspaces of repo reclaimed, (\d+) bytes freed$", reclaimed.stdout.strip())
    assert freed is not None and int(freed[1]) > 8 << 20, reclaimed.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show-active", "--repository", "nosuch"), "nosuch"),
        (("reclaim", "--repository", "repo", "--older-than", "soon"), "'soon'"),
    ],
)
def test_errors_are_one_line(base: Path, remote: Remote, arguments: tuple[str, ...], complaint: str) -> None:
    """A mistake is one line on stderr that names it, and exit status 2."""
    open_pool(base, remote, "pool")
    done = run(base, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert complaint in done.stderr


def test_durations() -> None:
    """Seconds, minutes, hours and days are understood, and nothing else."""
    assert [parse_duration(text) for text in ("5s", "2m", "1h", "3d")] == [
        timedelta(seconds=5),
        timedelta(minutes=2),
        timedelta(hours=1),
        timedelta(days=3),
    ]
    for text in ("", "1", "h", "-1h", "1.5h", "1w"):
        with pytest.raises(InvalidInputError, match="duration"):
            parse_duration(text)
