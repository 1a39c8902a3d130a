"""A store that is away when a command starts: the command runs on, and is never called one that did not start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from debug_server.errors import ConflictError
from debug_server.model import ArtifactKind, Command, CommandStatus, ExitReason
from debug_server.runner import EnvironmentManager
from debug_server.runner.spec import CommandResult, CommandSpec
from debug_server.runner.worker import WorkerSupervisor
from tests.runner.environment_support import hook
from tests.running import Bench, Started, Workspace, carrying, eventually, new_mark
from tests.store.away import away

BUSY = 0.1  # seconds that a writer waits for a locked database
MakeBench = Callable[..., Bench]


class _Slow:
    """A command whose environment is built until the test lets it go on."""

    def __init__(self, bench: Bench, text: str) -> None:
        self._bench, self._text = bench, text
        self._go = bench.workspace / "go"
        bench.supervisor.close()
        bench.supervisor = WorkerSupervisor(
            metadata_store=bench.store,
            paths=bench.settings.paths,
            environment_manager=EnvironmentManager(bench.root / "envs"),
            settings=bench.settings,
        )
        self.started = Started(bench, self._run)
        self.command: Command = eventually(self._find, what="a command whose environment is being built")

    def _run(self) -> CommandResult:
        build = f'touch building; until [ -e "{self._go}" ]; do sleep 0.01; done; mkdir -p "$DEBUG_SERVER_ENV_PATH/bin"'
        return self._bench.supervisor.run_command(
            self._bench.session.id,
            CommandSpec(["sh", "-c", self._text]),
            Workspace(self._bench.workspace),
            env_request=hook(build, name="slow", root=self._bench.workspace),
        )

    def _find(self) -> Command | None:
        found = self._bench.store.commands.in_session(self._bench.session.id)
        return found[0] if found and (self._bench.workspace / "building").exists() else None

    def go_on(self) -> None:
        """Let the build end."""
        self._go.touch()


def test_a_start_is_recorded_when_the_store_is_back(make_bench: MakeBench) -> None:
    """The store is away for longer than a writer waits: the command runs meanwhile, and then its row says so."""
    bench = make_bench(busy_seconds=BUSY)
    slow = _Slow(bench, "touch ran; until [ -e end ]; do sleep 0.02; done; echo done")
    with away(bench.database_url):
        slow.go_on()
        eventually((bench.workspace / "ran").exists, what="a running command")
        assert not threading.Event().wait(10 * BUSY), "many times as long as a writer waits"
        assert bench.store.commands.get(slow.command.id).status is CommandStatus.PENDING
        eventually(lambda: bench.supervisor.pipeline.running == [slow.command.id], what="a command that is waited for")
    eventually(lambda: bench.store.commands.get(slow.command.id).status is CommandStatus.RUNNING, what="a running row")
    (bench.workspace / "end").touch()
    result = slow.started.result()
    assert result.exit_reason is ExitReason.EXITED
    assert b"done\n" in bench.log(result)["stdout"]


def test_a_command_that_ends_before_its_start_is_recorded_ran(make_bench: MakeBench) -> None:
    """Start and end come into the row together, with the log."""
    bench = make_bench(busy_seconds=BUSY)
    slow = _Slow(bench, "echo words; sleep 0.3; touch over; exit 4")
    with away(bench.database_url):
        slow.go_on()
        eventually((bench.workspace / "over").exists, what="the end of the command")
    result = slow.started.result()
    assert (result.exit_reason, result.exit_code) == (ExitReason.NONZERO_EXIT, 4)
    row = bench.store.commands.get(slow.command.id)
    assert row.started_at is not None and row.exit_reason is ExitReason.NONZERO_EXIT
    (log,) = bench.store.artifacts.in_session(bench.session.id, kind=ArtifactKind.LOG)
    assert b"words\n" in Path(log.path).read_bytes()
    kinds = [event.kind for event in bench.store.events.read(0, 100) if event.command_id == row.id]
    assert kinds == ["command.pending", "command.started", "command.finished"]


def test_a_command_of_another_owner_is_ended(bench: Bench) -> None:
    """The row was taken over before the start could be recorded: what was started here is ended, the row untouched."""
    mark = new_mark("fenced")
    slow = _Slow(bench, f"sleep 1000; : {mark}")
    row = slow.command
    assert bench.store.queue.take_over(row.id, attempt=row.attempt, owner=str(row.owner), new_owner="another")
    slow.go_on()
    with pytest.raises(ConflictError):
        slow.started.result()
    assert not carrying(mark)
    row = bench.store.commands.get(row.id)
    assert (row.status, row.owner, row.exit) == (CommandStatus.PENDING, "another", None)
