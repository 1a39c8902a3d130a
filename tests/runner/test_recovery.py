"""A server that dies anywhere leaves each command one end, reached once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from debug_server.engine import LocalEngine
from debug_server.errors import CommandExecutionError
from debug_server.model import Command, CommandStatus, ExitReason
from debug_server.runner.launch import LaunchOrder
from debug_server.runner.log_format import index_path
from debug_server.runner.planning import log_path_of
from debug_server.runner.recovery import recover
from debug_server.runner.run_dirs import fence, read_json, run_dir_for
from tests.running import PROGRAMS, ROOT, Bench, carrying, eventually, new_mark, read_log

ONCE = ["sh", "-c", "echo once >> ran; echo output"]
WAITS = ["sh", "-c", "echo once >> ran; echo begun; while [ ! -e go ]; do sleep 0.02; done; echo over"]


@contextmanager
def _server(root: Path, point: str, mode: str, argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "die_at.py"), str(root), point, mode, *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _only_command(bench: Bench) -> Command:
    commands = [row for session in bench.store.sessions.page() for row in bench.store.commands.in_session(session.id)]
    assert len(commands) == 1
    return commands[0]


@contextmanager
def _engine(bench: Bench) -> Iterator[LocalEngine]:
    engine = LocalEngine(store=bench.store, supervisor=bench.supervisor)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def _ran(bench: Bench) -> int:
    path = bench.workspace / "ran"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("mode", ["inline", "queued"])
@pytest.mark.parametrize("point", ["claimed", "ordered", "launched", "started", "ended", "finished"])
def test_killed_there_it_ends_once(tmp_path: Path, make_bench: Callable[..., Bench], point: str, mode: str) -> None:
    """kill -9 at each step: the next server finishes the command, which ran once if it ran at all."""
    root = tmp_path / "server"
    with _server(root, point, mode, ONCE) as server:
        assert server.wait(60) == -signal.SIGKILL
    bench = make_bench(root=root)
    with _engine(bench) as engine:
        command = engine.wait(_only_command(bench).id, 60.0)
    if mode == "inline" and point in ("claimed", "ordered") and command.exit_reason is ExitReason.LOST:
        assert _ran(bench) == 0, "lost before it was started"
        return
    assert (command.status, command.exit_reason) == (CommandStatus.SUCCEEDED, ExitReason.EXITED)
    assert _ran(bench) == 1
    assert read_log(Path(str(command.log_path)))["stdout"] == b"output\n"


def test_a_queued_command_that_was_only_claimed_runs_again(tmp_path: Path, make_bench: Callable[..., Bench]) -> None:
    """It goes back to the queue and is a second attempt."""
    root = tmp_path / "server"
    with _server(root, "claimed", "queued", ONCE) as server:
        assert server.wait(60) == -signal.SIGKILL
    bench = make_bench(root=root)
    with _engine(bench) as engine:
        command = engine.wait(_only_command(bench).id, 60.0)
    assert (command.status, command.attempt, _ran(bench)) == (CommandStatus.SUCCEEDED, 2, 1)


def test_a_command_that_never_started_leaves_no_log(tmp_path: Path, make_bench: Callable[..., Bench]) -> None:
    """Killed when its keeper had made the log and no more, and cancelled meanwhile: the empty log goes with it."""
    root = tmp_path / "server"
    with _server(root, "claimed", "queued", ONCE) as server:
        assert server.wait(60) == -signal.SIGKILL
    bench = make_bench(root=root)
    log_path = log_path_of(bench.settings.paths, _only_command(bench))
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log_path.touch()
    Path(index_path(log_path)).touch()
    bench.store.commands.request_cancel(_only_command(bench).id)
    with _engine(bench) as engine:
        command = engine.wait(_only_command(bench).id, 60.0)
    assert (command.exit_reason, command.log_path, _ran(bench)) == (ExitReason.CANCELLED, None, 0)
    assert list(log_path.parent.iterdir()) == []


def test_a_running_command_is_carried_on(tmp_path: Path, make_bench: Callable[..., Bench]) -> None:
    """kill -9 while it runs: the very same process goes on, the next server adopts it and hears its end."""
    root = tmp_path / "server"
    with _server(root, "never", "queued", WAITS) as server:
        bench = make_bench(root=root)
        eventually((bench.workspace / "ran").exists, what="the command's start")
        eventually(lambda: _only_command(bench).status is CommandStatus.RUNNING, what="its row to say so")
        server.kill()
        server.wait(60)
    with _engine(bench) as engine:
        assert _only_command(bench).status is CommandStatus.RUNNING
        (bench.workspace / "go").touch()
        command = engine.wait(_only_command(bench).id, 60.0)
    assert command.exit_reason is ExitReason.EXITED
    assert (command.attempt, _ran(bench)) == (1, 1)
    assert read_log(Path(str(command.log_path)))["stdout"] == b"begun\nover\n"


def test_an_adopted_command_can_be_cancelled(tmp_path: Path, make_bench: Callable[..., Bench]) -> None:
    """Also when the wish was recorded while no server lived."""
    root = tmp_path / "server"
    with _server(root, "started", "queued", WAITS) as server:
        assert server.wait(60) == -signal.SIGKILL
    bench = make_bench(root=root)
    bench.store.commands.request_cancel(_only_command(bench).id)
    with _engine(bench) as engine:
        command = engine.wait(_only_command(bench).id, 60.0)
    assert command.exit_reason is ExitReason.CANCELLED


def test_server_and_keeper_killed_is_lost(tmp_path: Path, make_bench: Callable[..., Bench]) -> None:
    """Nobody is left who knows: the tree is ended, the run is lost, what it had written is kept and complete."""
    root, mark = tmp_path / "server", new_mark("lost")
    with _server(root, "started", "queued", [*WAITS, mark]) as server:
        assert server.wait(60) == -signal.SIGKILL
    bench = make_bench(root=root)
    command = _only_command(bench)
    handle = read_json(run_dir_for(bench.settings.paths.keepers_dir, command.id, command.attempt) / "handle.json")
    assert handle is not None
    eventually((bench.workspace / "ran").exists, what="the command's start")
    os.kill(handle["keeper"]["pid"], signal.SIGKILL)
    with _engine(bench) as engine:
        command = engine.wait(command.id, 60.0)
    assert (command.status, command.exit_reason) == (CommandStatus.FAILED, ExitReason.LOST)
    eventually(lambda: not carrying(mark), what="the end of its tree")


def test_keeper_killed_under_a_live_server_is_lost(held: Bench) -> None:
    """The one who waits is told at once, and its log is sealed."""
    started = held.start(["sh", "-c", "echo kept; sleep 1000"])
    started.await_output(b"kept")
    os.kill(started.handle()["keeper"]["pid"], signal.SIGKILL)
    result = started.result(20.0)
    assert (result.exit_reason, result.status) == (ExitReason.LOST, CommandStatus.FAILED)
    assert held.log(result)["stdout"] == b"kept\n"


def test_the_fork_server_killed_harms_no_command(held: Bench) -> None:
    """What runs goes on under its keeper, and the next command gets a new fork server."""
    started = held.start(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo over"])
    parent = Path(f"/proc/{started.handle()['keeper']['pid']}/stat").read_text().rsplit(") ", 1)[1].split()[1]
    os.kill(int(parent), signal.SIGKILL)
    assert held.run(["true"]).exit_reason is ExitReason.EXITED
    (held.workspace / "go").touch()
    result = started.result()
    assert (result.exit_reason, held.log(result)["stdout"]) == (ExitReason.EXITED, b"over\n")


def test_a_late_keeper_is_fenced_off(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovering server was first: the keeper that comes later runs nothing."""
    real = LaunchOrder.to_json

    def fenced(order: LaunchOrder, run_dir: Path) -> dict[str, object]:
        assert fence(run_dir) is None
        return real(order, run_dir)

    monkeypatch.setattr(LaunchOrder, "to_json", fenced)
    with pytest.raises(CommandExecutionError, match="another server"):
        bench.run(["touch", "ran"])
    assert not (bench.workspace / "ran").exists()
    (command,) = bench.store.commands.in_session(bench.session.id)
    assert command.status.terminal
    assert recover(bench.store, bench.settings.paths, bench.supervisor.owner) == []
