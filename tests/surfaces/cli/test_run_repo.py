"""``debug-server run --repo``: its stages, and what is left of it when it fails or is killed."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debug_server.app import Local
from debug_server.model import ArtifactKind, Session, SessionStatus, WorktreeStatus
from debug_server.runner.keeper.rundir import EXIT
from debug_server.runner.run_dirs import run_dir_for
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.runner.environment_support import make_wheel
from tests.running import SETTINGS_HERE, VISIBLE, eventually
from tests.servers import unmount_below
from tests.worktrees.places import make_remote

PROGRAM = Path(sys.executable).with_name("debug-server")
PATCH = "--- a/note\n+++ b/note\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture(autouse=True)
def _nothing_mounted(tmp_path: Path) -> Iterator[None]:
    """Whether the test passes or fails, its workspaces are given back."""
    yield
    unmount_below(tmp_path)


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _call(folder, "run", *arguments)


def _call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        cwd=folder,
        env=_env(folder),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def _env(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEBUG_SERVER_")}
    return {**kept, **SETTINGS_HERE, "DEBUG_SERVER_HOME": str(folder / "home")}


def _local(folder: Path) -> Local:
    settings = RunnerSettings(RunnerPaths.from_root(folder / ".artifacts"), isolation=VISIBLE)
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


def test_stages_are_live_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal a stage is seen to begin, and its end takes the same line; a failed one says so."""
    make_remote(tmp_path / "remote").commit({"note": "one\n"})
    shown = _on_terminal(tmp_path, "--repo", "remote", "--commit", "main", "--", "true")
    ended = r"\r\x1b\[K\[debug-server\] {}: {} in [0-9.]+ s\r\n"
    for name, begun, done in (("mirror", "remote", r"remote from \S+/remote"), ("workspace", "main", "[0-9a-f]{12}")):
        assert re.search(rf"\[debug-server\] {name}: {begun} …" + ended.format(name, done), shown), shown
    shown = _on_terminal(tmp_path, "--repo", "remote", "--commit", "nowhere", "--", "true")
    failed = r"\[debug-server\] workspace: nowhere …\r\x1b\[K\[debug-server\] workspace: nowhere failed after"
    assert re.search(failed, shown) and "debug-server: " in shown.splitlines()[-1], shown


def _on_terminal(folder: Path, *arguments: str) -> str:
    """What ``run`` shows on stderr, which is a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [PROGRAM, "run", *arguments],
            cwd=folder,
            env=_env(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            timeout=200,
            check=False,
        )
    finally:
        os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as reader:  # EIO: nobody writes any more
        while piece := reader.read(4096):
            shown += piece
    return shown.decode()


def test_what_cannot_be_reached_is_not_left_registered(tmp_path: Path) -> None:
    """A wrong path or address with a password: one error, the secret unseen, and no repository in the store."""
    for remote, status in (
        ("nowhere", 2),
        ("https://127.0.0.1:9/x.git", 125),
        ("https://me:s3cret@127.0.0.1:9/x.git", 2),
    ):
        done = _run(tmp_path, "--repo", remote, "--", "true")
        assert done.returncode == status, done.stderr
        assert "s3cret" not in done.stderr and "Traceback" not in done.stderr
    with _local(tmp_path) as local:
        assert local.store.repositories.page() == []


@contextmanager
def _killed_run(folder: Path) -> Iterator[None]:
    """``run --repo`` with an artifact, killed -9 while its command runs, which ends with the block."""
    make_remote(folder / "remote").commit({"note": "one\n"})
    make = "echo kept > out.txt; ln -s outer outer; ln -s . outside"  # a loop and a folder are no files
    # It ends with its folder as well: nothing may outlive a test that is killed.
    script = f"echo ready; while [ -d {folder} ] && [ ! -e {folder}/go ]; do sleep 0.02; done; {make}"
    arguments = [str(PROGRAM), "run", "--repo", "remote", "--artifact", "out*", "--", "sh", "-c", script]
    with subprocess.Popen(arguments, cwd=folder, env=_env(folder), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait(100)
    try:
        yield
    finally:
        (folder / "go").touch()


def _check_settled(local: Local, session: Session) -> None:
    """The session has its end, the artifact is kept, the workspace is free."""
    assert local.store.sessions.get(session.id).status is SessionStatus.COMPLETED
    assert session.worktree_id is not None
    assert local.store.worktrees.get(session.worktree_id).status is WorktreeStatus.IDLE
    (artifact,) = local.store.artifacts.in_session(session.id, kind=ArtifactKind.CUSTOM)
    assert artifact.name == "out.txt" and Path(artifact.path).read_text() == "kept\n"


def test_a_killed_run_is_carried_on_by_a_server(tmp_path: Path) -> None:
    """kill -9: the command goes on under the server's eyes; at its end its files are kept and its workspace is free."""
    with _local(tmp_path) as local:
        with _killed_run(tmp_path):
            (session,) = local.sessions.open_sessions()
            local.engine.start()
            assert [row.id for row in local.sessions.open_sessions()] == [session.id]
        eventually(lambda: not local.sessions.open_sessions())
        _check_settled(local, session)
        local.engine.stop()


def test_a_killed_run_is_settled_by_the_next_one(tmp_path: Path) -> None:
    """Without any server: a run leaves alone what still runs, and after its end does for it what it could not do."""
    with _local(tmp_path) as local:
        with _killed_run(tmp_path):
            (session,) = local.sessions.open_sessions()
            assert _run(tmp_path, "--repo", "remote", "--", "true").returncode == 0
            assert [row.id for row in local.sessions.open_sessions()] == [session.id]
        (command,) = local.store.commands.in_session(session.id)
        run_dir = run_dir_for(local.settings.paths.keepers_dir, command.id, command.attempt)
        eventually((run_dir / EXIT).exists)
        assert _run(tmp_path, "--repo", "remote", "--", "true").returncode == 0
        _check_settled(local, session)


def test_a_stage_that_fails_says_why_once(tmp_path: Path) -> None:
    """A patch that does not apply and a manifest that is missing: the reason once, then where the log is."""
    make_remote(tmp_path / "remote").commit({"note": "three\n"})
    (tmp_path / "fix.patch").write_text(PATCH)
    for options, reason, words in (
        (["--patch", "fix.patch"], "patch_failed", "does not apply to note"),
        (["--manifest", "none.txt"], "env_failed", "none.txt' does not exist"),
    ):
        done = _run(tmp_path, "--repo", "remote", *options, "--", "true")
        assert done.returncode == 125 and done.stderr.count(words) == 1, done.stderr
        assert re.search(
            rf"^\[debug-server\] {reason}: see above \(.*log .*\.log, session \d+\)$", done.stderr, re.MULTILINE
        )


def test_a_folder_named_like_the_home(tmp_path: Path) -> None:
    """``./~`` is the folder of that name here, not the home."""
    make_remote(tmp_path / "~").commit({"note": "here\n"})
    done = _run(tmp_path, "--repo", "./~", "--", "cat", "note")
    assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr


def test_matches_that_are_no_files_are_named(tmp_path: Path) -> None:
    """A loop of links and a link to a folder are named with the reason; the rest is kept, the status stays."""
    make_remote(tmp_path / "remote").commit({"d/note": "one\n"})
    script = "echo 1 > good.x; ln -s loop.x loop.x; ln -s d folder.x; exit 3"
    done = _run(tmp_path, "--repo", "remote", "--artifact", "*.x", "--", "sh", "-c", script)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "artifact: good.x (custom, 2 bytes)" in done.stderr
    assert "artifact: folder.x was not kept: it is not a regular file" in done.stderr
    assert "artifact: loop.x was not kept: it cannot be read: Too many levels of symbolic links" in done.stderr


PROJECT = """
[project]
name = "project-under-test"
version = "1.0"
[project.optional-dependencies]
more = ["tinya"]
[dependency-groups]
test = ["tinyb"]
[tool.uv]
no-index = true
find-links = [{wheels!r}]
"""


def test_extras_and_groups(tmp_path: Path) -> None:
    """What ``pyproject.toml`` offers is there when it was named, and only then."""
    for name in ("tinya", "tinyb"):
        make_wheel(tmp_path / "wheels", name, "1.0")
    make_remote(tmp_path / "remote").commit({"pyproject.toml": PROJECT.format(wheels=str(tmp_path / "wheels"))})
    seen = "from importlib.util import find_spec as f; print(*(n for n in ('tinya', 'tinyb') if f(n)))"
    for parts, wanted in (
        ([], ""),
        (["--extra", "more"], "tinya"),
        (["--extra", "more", "--group", "test"], "tinya tinyb"),
    ):
        line = ["--repo", "remote", "--manifest", "pyproject.toml", *parts, "--", "python", "-c", seen]
        done = _run(tmp_path, *line)
        assert (done.returncode, done.stdout) == (0, f"{wanted}\n"), done.stderr
    assert "--extra needs --repo" in _run(tmp_path, "--extra", "more", "--", "true").stderr


def test_lfs_pointers_are_told(tmp_path: Path) -> None:
    """A commit whose large files are not here says so before the command runs."""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 7\n"
    make_remote(tmp_path / "remote").commit({".gitattributes": "*.bin filter=lfs\n", "model.bin": pointer})
    done = _run(tmp_path, "--repo", "remote", "--", "true")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "[debug-server] lfs: 1 of the files are Git LFS pointers without their content: model.bin; " in done.stderr


def test_a_run_waits_for_a_workspace(tmp_path: Path) -> None:
    """When all are leased a run says for what it waits, and goes on once one is released."""
    make_remote(tmp_path / "remote").commit({"note": "one\n"})
    environ = {**_env(tmp_path), "DEBUG_SERVER_WORKSPACES_MAX_WORKTREES": "1"}
    begun, go = tmp_path / "begun", tmp_path / "go"
    hold = f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"
    line, told = [str(PROGRAM), "run", "--repo", "remote", "--"], tmp_path / "told"
    with told.open("wb") as file, contextlib.ExitStack() as running:

        def start(*command: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([*line, *command], cwd=tmp_path, env=environ, stderr=file)
            return running.enter_context(process)

        first = start("sh", "-c", hold)
        try:
            eventually(begun.exists, what="the first command")
            last = start("cat", "note")
            eventually(lambda: "waits for one: all 1 workspaces" in told.read_text(), what="the notice")
        finally:
            go.touch()
        assert (first.wait(100), last.wait(100)) == (0, 0)


def test_no_manifest(tmp_path: Path) -> None:
    """The project's files say what is needed, also those that a patch adds; ``plan`` shows it; ``system`` has none."""
    make_wheel(tmp_path / "wheels", "tinyb", "1.0")
    make_remote(tmp_path / "remote").commit({"note": "one\n"})
    text = PROJECT.format(wheels=str(tmp_path / "wheels"))
    added = "".join(f"+{line}\n" for line in text.splitlines())
    header = f"--- /dev/null\n+++ b/pyproject.toml\n@@ -0,0 +1,{len(text.splitlines())} @@\n"
    (tmp_path / "add.patch").write_text(header + added)
    seen = "import os; print('VIRTUAL_ENV' in os.environ, end=' '); import tinyb; print(tinyb.VERSION)"
    patched = ["--repo", "remote", "--patch", "add.patch"]
    line = "[debug-server] environment: pyproject.toml; group 'test', named for tests\n"

    planned = _call(tmp_path, "plan", *patched)
    assert "group 'test', named for tests" in planned.stdout and "not built yet" in planned.stdout, planned.stderr
    done = _run(tmp_path, *patched, "--", "python", "-c", seen)
    assert (done.returncode, done.stdout) == (0, "True 1.0\n") and line in done.stderr, done.stderr
    assert "(built)" in _call(tmp_path, "plan", *patched).stdout
    done = _run(tmp_path, *patched, "--python", "system", "--", sys.executable, "-c", seen)
    assert (done.returncode, done.stdout) == (1, "False "), done.stderr
    done = _run(tmp_path, "--repo", "remote", "--", sys.executable, "-c", seen)
    assert (done.returncode, done.stdout) == (1, "False ") and "environment:" not in done.stderr, done.stderr
    done = _run(tmp_path, "--repo", "remote", "--manifest", "none", "--", "python", "-c", seen)
    assert (done.returncode, done.stdout) == (1, "True ") and "No module named 'tinyb'" in done.stderr
