"""A cancel that comes before the command runs: its program never starts, and what was prepared for it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from debug_server.engine import LocalEngine
from debug_server.model import CommandStatus, ExitReason, LogChunk
from debug_server.runner import EnvironmentManager
from debug_server.runner.environment import EnvironmentRequest
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from debug_server.worktrees import SessionPatch
from tests.runner.environment_support import hook
from tests.running import Bench, Started, Workspace, carrying, eventually, new_mark


@pytest.fixture
def supervisor(bench: Bench) -> Iterator[WorkerSupervisor]:
    """One with environments."""
    with WorkerSupervisor(
        metadata_store=bench.store,
        paths=bench.settings.paths,
        environment_manager=EnvironmentManager(bench.root / "envs"),
        settings=bench.settings,
    ) as made:
        yield made


def _request(bench: Bench, mark: str) -> EnvironmentRequest:
    """Each build adds a line to ``builds`` and has a child of its own; it goes on once ``go`` is there."""
    build = (
        f"echo build >> builds; echo building; sh -c 'until [ -e \"$1\" ]; do sleep 0.02; done' {mark} "
        f'"{bench.workspace}/go"; mkdir -p "$DEBUG_SERVER_ENV_PATH/bin"'
    )
    return hook(build, name="slow", root=bench.workspace)


def _start(bench: Bench, supervisor: WorkerSupervisor, request: EnvironmentRequest, name: str) -> Started:
    def run() -> CommandResult:
        spec = CommandSpec(["touch", name])
        return supervisor.run_command(bench.session.id, spec, Workspace(bench.workspace), env_request=request)

    return Started(bench, run)


def _builds(bench: Bench) -> int:
    path = bench.workspace / "builds"
    return len(path.read_text().split()) if path.exists() else 0


def _half_made(bench: Bench) -> list[Path]:
    return [path for path in (bench.root / "envs").rglob("bin") if path.is_dir()]


def test_a_cancelled_build_is_ended_and_nothing_starts(bench: Bench, supervisor: WorkerSupervisor) -> None:
    """The builder's tree is ended, its folder removed; the row says cancelled and was never started."""
    mark = new_mark("build")
    started = _start(bench, supervisor, _request(bench, mark), "ran")
    eventually(lambda: carrying(mark), what="a build")
    supervisor.pipeline.cancel_all("not needed any more")
    result = started.result()
    assert (result.exit_reason, result.exit.message) == (ExitReason.CANCELLED, "not needed any more")
    assert not carrying(mark)
    row = bench.store.commands.get(result.command_id)
    assert (row.status, row.started_at) == (CommandStatus.CANCELLED, None)
    assert b"cancelled: not needed any more" in bench.log(row)["system"]
    assert not (bench.workspace / "ran").exists()
    assert not _half_made(bench)
    assert not supervisor.pipeline.cancel(result.command_id), "it has ended"


def test_a_build_that_another_command_needs_is_taken_over(bench: Bench, supervisor: WorkerSupervisor) -> None:
    """The command that builds is cancelled while another waits for the same environment: that one builds and runs."""
    mark = new_mark("shared")
    first = _start(bench, supervisor, _request(bench, mark), "first")
    eventually(lambda: _builds(bench) == 1, what="a build")
    second = _start(bench, supervisor, _request(bench, mark), "second")
    eventually(lambda: len(bench.store.commands.in_session(bench.session.id)) == 2, what="two commands")
    building, waiting = bench.store.commands.in_session(bench.session.id)
    log = supervisor.pipeline.log_path(waiting)
    eventually(lambda: log.exists() and b"waiting for another builder" in log.read_bytes(), what="one that waits")
    supervisor.pipeline.cancel(building.id)
    assert first.result().exit_reason is ExitReason.CANCELLED
    eventually(lambda: _builds(bench) == 2, what="a second build")
    (bench.workspace / "go").touch()
    assert second.result().exit_reason is ExitReason.EXITED
    assert (bench.workspace / "second").exists() and not (bench.workspace / "first").exists()


def test_a_wait_for_another_s_build_is_ended(bench: Bench, supervisor: WorkerSupervisor) -> None:
    """The one that waits is cancelled: it ends at once, and the build goes on for the other."""
    mark = new_mark("kept")
    first = _start(bench, supervisor, _request(bench, mark), "first")
    eventually(lambda: carrying(mark), what="a build")
    second = _start(bench, supervisor, _request(bench, mark), "second")
    eventually(lambda: len(bench.store.commands.in_session(bench.session.id)) == 2, what="two commands")
    waiting = bench.store.commands.in_session(bench.session.id)[1]
    log = supervisor.pipeline.log_path(waiting)
    eventually(lambda: log.exists() and b"waiting for another builder" in log.read_bytes(), what="one that waits")
    supervisor.pipeline.cancel(waiting.id)
    assert second.result().exit_reason is ExitReason.CANCELLED
    assert carrying(mark), "the build goes on"
    (bench.workspace / "go").touch()
    assert first.result().exit_reason is ExitReason.EXITED
    assert _builds(bench) == 1


HALF_DONE = """#!/bin/sh
[ "$1" = apply ] || exec {git} "$@"
cat > /dev/null
echo half > note
echo half > new
touch {begun}
exec sleep 600
"""
PATCH = """diff --git a/note b/note
--- a/note
+++ b/note
@@ -1 +1 @@
-one
+two
diff --git a/new b/new
new file mode 100644
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+new
"""


def test_a_patch_that_takes_long_is_ended(
    bench: Bench, supervisor: WorkerSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git that is in the midst of a patch is killed, the files are as before, and the program never starts."""
    (bench.workspace / "note").write_text("one\n")
    (tmp_path / "slow").mkdir()
    slow, begun = tmp_path / "slow" / "git", tmp_path / "begun"
    slow.write_text(HALF_DONE.format(git=shutil.which("git"), begun=begun))
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")

    def run() -> CommandResult:
        spec, place = CommandSpec(["touch", "ran"]), Workspace(bench.workspace)
        return supervisor.run_command(bench.session.id, spec, place, patch=SessionPatch(PATCH))

    started = Started(bench, run)
    eventually(begun.exists, what="git apply")
    supervisor.pipeline.cancel_all("not needed any more")
    result = started.result()
    assert (result.exit_reason, result.exit.message) == (ExitReason.CANCELLED, "not needed any more")
    assert (bench.workspace / "note").read_text() == "one\n"
    assert sorted(path.name for path in bench.workspace.iterdir()) == ["note"]


def test_who_reads_the_first_words_may_end_the_command(bench: Bench, supervisor: WorkerSupervisor) -> None:
    """An observer cancels everything while the environment is being built."""

    def end(chunk: LogChunk) -> None:
        if b"building" in chunk.data:
            supervisor.pipeline.cancel_all("heard enough")

    result = supervisor.run_command(
        bench.session.id,
        CommandSpec(["touch", "ran"]),
        Workspace(bench.workspace),
        env_request=_request(bench, new_mark("heard")),
        stream_observers=[end],
    )
    assert (result.exit_reason, result.exit.message) == (ExitReason.CANCELLED, "heard enough")
    assert not (bench.workspace / "ran").exists()


def test_a_mark_in_the_row_keeps_the_command_from_starting(bench: Bench) -> None:
    """Cancelled after the claim, by whichever process: the program does not start."""
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    command = engine.submit(session_id=bench.session.id, spec=CommandSpec(["touch", "ran"]))
    claimed = bench.store.queue.claim_next(bench.supervisor.owner)
    assert claimed is not None
    engine.cancel(command.id)
    engine._run(claimed)
    row = bench.store.commands.get(command.id)
    assert (row.status, row.started_at) == (CommandStatus.CANCELLED, None)
    assert not (bench.workspace / "ran").exists()
