"""``debug-server run --repo``: its stages, and what is left of it when it fails or is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from debug_server.app import Local
from debug_server.model import SessionStatus, WorktreeStatus
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.client.serving import unmount_below
from tests.running import eventually
from tests.worktrees.places import make_remote

PROGRAM = Path(sys.executable).with_name("debug-server")
PATCH = "--- a/note\n+++ b/note\n@@ -1 +1 @@\n-one\n+two\n"


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "run", *arguments],
        cwd=folder,
        env=_env(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _env(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEBUG_SERVER_")}
    return {**kept, "DEBUG_SERVER_HOME": str(folder / "home")}


def _local(folder: Path) -> Local:
    settings = RunnerSettings(RunnerPaths.from_root(folder / ".artifacts"))
    return Local(settings, str(folder / ".artifacts/data/metadata.db"))


def test_a_line_for_each_stage(tmp_path: Path) -> None:
    """In a pipe each stage is one plain line in one format, in order, and stdout has the command's bytes alone."""
    make_remote(tmp_path / "remote").commit({"note": "one\n"})
    (tmp_path / "fix.patch").write_text(PATCH)
    done = _run(tmp_path, "--repo", "remote", "--commit", "main", "--patch", "fix.patch", "--", "cat", "note")
    assert (done.returncode, done.stdout) == (0, "two\n")
    stages = re.findall(r"^\[debug-server\] (\w+): .*$", done.stderr, re.MULTILINE)
    assert stages == ["mirror", "workspace", "patch", "run", "exited"]
    assert "\r" not in done.stderr and "\x1b" not in done.stderr


def test_what_cannot_be_reached_is_not_left_registered(tmp_path: Path) -> None:
    """A wrong path or address with a password: one error, the secret unseen, and no repository in the store."""
    for remote in ("nowhere", "https://me:s3cret@127.0.0.1:9/x.git"):
        done = _run(tmp_path, "--repo", remote, "--", "true")
        assert done.returncode == 125
        assert "s3cret" not in done.stderr and "Traceback" not in done.stderr
    with _local(tmp_path) as local:
        assert local.store.list_repositories() == []


def test_a_killed_run_gives_its_workspace_back(tmp_path: Path) -> None:
    """kill -9: the command goes on; once it has ended, the next recovery closes the session and frees the workspace."""
    make_remote(tmp_path / "remote").commit({"note": "one\n"})
    script = f"echo ready; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    arguments = [str(PROGRAM), "run", "--repo", "remote", "--", "sh", "-c", script]
    with subprocess.Popen(arguments, cwd=tmp_path, env=_env(tmp_path), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait(10)
    with _local(tmp_path) as local:
        (session,) = local.sessions.open_sessions()
        local.engine.start()
        assert [row.id for row in local.sessions.open_sessions()] == [session.id]
        (tmp_path / "go").touch()
        eventually(lambda: not local.sessions.open_sessions(), 20)
        assert local.store.get_session(session.id).status is SessionStatus.COMPLETED
        assert session.worktree_id is not None
        assert local.store.get_worktree(session.worktree_id).status is WorktreeStatus.IDLE
        local.engine.stop()
    unmount_below(tmp_path)
