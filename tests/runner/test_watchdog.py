"""A command that stops its keeper, or the fork server, ends all the same, and keeps nobody else from running."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from debug_server.model import ExitReason, Limits
from debug_server.runner import keeper_pool
from debug_server.runner.keeper.tree import children
from debug_server.runner.recovery import recover
from debug_server.runner.running_command import DetachedError
from tests.running import Bench, carrying, eventually, missing_mechanism, new_mark, python

# The shell's parent is its keeper, but in a pid namespace, where the command cannot see it.
_STOP = "kill -STOP $PPID; echo ready; "
_KEEP_STOPPED = "import os, signal\nwhile True: os.kill(os.getppid(), signal.SIGSTOP)\n"


@pytest.fixture(params=["cgroup", "session"])
def visible(request: pytest.FixtureRequest) -> str:
    """A mechanism with which a command sees its keeper."""
    if reason := missing_mechanism(request.param):
        pytest.skip(f"{request.param}: {reason}")
    return str(request.param)


@pytest.fixture
def stoppable(visible: str, make_bench: Callable[..., Bench]) -> Bench:
    """Where a keeper that gets no processor for some seconds is not given up."""
    return make_bench(visible)


@pytest.fixture
def impatient(visible: str, make_bench: Callable[..., Bench]) -> Bench:
    """Where a silent keeper is killed soon."""
    return make_bench(visible, keeper_patience=2.0)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_timeout_ends_a_command_that_stopped_its_keeper(stoppable: Bench) -> None:
    """The keeper is continued and ends its command as timed out."""
    result = stoppable.run(["sh", "-c", _STOP + "sleep 1000"], limits=Limits(wall_seconds=0.5))
    assert result.exit_reason is ExitReason.TIMED_OUT


def test_a_cancel_ends_a_command_that_stopped_its_keeper(stoppable: Bench) -> None:
    """The keeper is continued and hears of the cancel."""
    started = stoppable.start(["sh", "-c", _STOP + "sleep 1000"])
    stoppable.supervisor.pipeline.cancel(started.command.id)
    assert started.result().exit_reason is ExitReason.CANCELLED


def test_the_end_of_a_command_that_stopped_its_keeper_is_noticed(stoppable: Bench) -> None:
    """Nobody set a time or asked for its end: the keeper is continued, and the row has its end and all output."""
    result = stoppable.run(["sh", "-c", _STOP + "exit 3"])
    assert result.exit_code == 3
    assert stoppable.log(result)["stdout"] == b"ready\n"


def test_a_keeper_that_is_stopped_again_and_again_is_killed(impatient: Bench) -> None:
    """It cannot do its work: the command is lost, its tree is ended, and the record says why."""
    mark = new_mark("stopper")
    started = impatient.start(python(_KEEP_STOPPED, mark), limits=Limits(wall_seconds=1.0))
    result = started.result()
    # It may get the moment that it needs between two stops.
    assert result.exit_reason in (ExitReason.LOST, ExitReason.TIMED_OUT)
    if result.exit_reason is ExitReason.LOST:
        assert result.exit.evidence["keeper_silent_seconds"] >= 2.0
    eventually(lambda: not carrying(mark), what="the end of the tree")


def test_a_silent_keeper_is_killed_after_a_cancel(impatient: Bench) -> None:
    """One that is continued by nobody's signal, as under a debugger, is given up when it does not hear of a cancel."""
    started = impatient.start(["sleep", "1000"])
    keeper = started.handle()["keeper"]["pid"]
    tracer = _trace(keeper)
    try:
        impatient.supervisor.pipeline.cancel(started.command.id)
        result = started.result()
    finally:
        os.kill(tracer, signal.SIGKILL)
        os.waitpid(tracer, 0)
    assert result.exit_reason is ExitReason.LOST
    assert "did not answer" in result.exit.message
    assert result.exit.evidence["keeper_silent_seconds"] >= 2.0


def _trace(pid: int) -> int:
    """A process that holds ``pid`` as its tracer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        held = libc.ptrace(16, pid, None, None) == 0  # PTRACE_ATTACH
        os.write(writer, b"y" if held else b"n")
        while True:
            time.sleep(1000)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    if answer != b"y":
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.skip("no process may be traced here")
    eventually(lambda: _state(pid) == "t", what="the keeper is held")
    return child


def test_eight_such_commands_do_not_block_a_ninth(stoppable: Bench) -> None:
    """As many as may run at once stop their keepers and end; another one runs beside and after them."""
    stoppers = [stoppable.start(["sh", "-c", f"{_STOP} sleep 0.{n}"]) for n in range(1, 9)]
    assert stoppable.run(["true"]).exit_code == 0
    assert [started.result().exit_code for started in stoppers] == [0] * 8


def test_a_stopped_keeper_is_adopted(stoppable: Bench) -> None:
    """The server that started it lets go; another one finds the keeper stopped, continues it and waits for the end."""
    go = stoppable.workspace / "go"
    started = stoppable.start(["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 4"])
    keeper = started.handle()["keeper"]["pid"]
    stoppable.supervisor.pipeline.detach_all()
    with pytest.raises(DetachedError):
        started.result()
    stoppable.supervisor.close()
    os.kill(keeper, signal.SIGSTOP)
    go.touch()
    stoppable.supervisor = stoppable.new_supervisor()
    (adopted,) = recover(stoppable.store, stoppable.settings.paths, stoppable.supervisor.owner)
    result = stoppable.supervisor.pipeline.wait_for_adopted(adopted.command, adopted.running, adopted.log_path)
    assert result.exit_code == 4


@pytest.fixture
def forking(make_bench: Callable[..., Bench]) -> Iterator[tuple[Bench, int]]:
    """With a fork server that has run a command."""
    bench = make_bench(spare_keepers=1, max_concurrency=1)
    assert bench.run(["true"]).exit_code == 0
    process = bench.supervisor.pool._process
    assert process is not None
    yield bench, process.pid


def test_a_stopped_fork_server_is_continued(forking: tuple[Bench, int]) -> None:
    """More commands than keepers are ready: the fork server that must make some is set going again."""
    bench, server = forking
    os.kill(server, signal.SIGSTOP)
    started = [bench.start(["sleep", f"0.{n}"]) for n in range(1, 6)]
    assert [one.result().exit_code for one in started] == [0] * 5


def test_a_fork_server_that_stays_stopped_is_replaced(
    forking: tuple[Bench, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped again whenever it is continued it is killed, and another one makes the keepers."""
    monkeypatch.setattr(keeper_pool, "_STOPPED_SECONDS", 1.0)
    bench, server = forking
    stopper = os.fork()
    if stopper == 0:
        while True:
            try:
                os.kill(server, signal.SIGSTOP)
            except ProcessLookupError:
                os._exit(0)
    try:
        eventually(lambda: _state(server) == "T", what="a stopped fork server")
        started = [bench.start(["sleep", f"0.{n}"]) for n in range(1, 5)]
        assert [one.result().exit_code for one in started] == [0] * 4
    finally:
        os.kill(stopper, signal.SIGKILL)
        os.waitpid(stopper, 0)


def test_a_stopped_spare_keeper_is_continued(forking: tuple[Bench, int]) -> None:
    """One that was stopped while it waited for a command begins it when it is continued."""
    bench, server = forking
    for pid in children(server):
        os.kill(pid, signal.SIGSTOP)
    assert bench.run(["sh", "-c", "exit 5"]).exit_code == 5
