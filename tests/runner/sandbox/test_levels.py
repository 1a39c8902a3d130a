"""A command works and ends in the same way at every level, however its tree of processes is held."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from debug_server.config import IsolationConfig
from debug_server.model import CommandStatus, ExitReason, Limits
from debug_server.model.isolation import Level
from debug_server.runner.keeper.linux import stat_fields
from tests.runner.escapes import escape
from tests.running import ROOT, Bench, Started, carrying, eventually, new_mark, program, python

MIB = 1 << 20
ARTISTS = ("double_fork", "stopped", "hydra", "wiped", "fork_storm")


@pytest.fixture(params=["none", "process", "namespace"])
def level(request: pytest.FixtureRequest) -> str:
    """Each level of isolation."""
    name: str = request.param
    return name


@pytest.fixture
def confined(make_bench: Callable[..., Bench], mechanism: str, level: str) -> Bench:
    """Commands are isolated without asking; they may read this repository and the interpreter."""
    read = (str(ROOT), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    bench = make_bench(mechanism, isolation=IsolationConfig(elsewhere=cast(Level, level), read=read))
    why = bench.supervisor.pool.capabilities.isolation["namespace"]
    if level == "namespace" and why is not None:
        pytest.skip(why)
    return bench


def _mounts() -> int:
    return Path("/proc/self/mountinfo").read_text().count("\n")


def test_output_and_status(confined: Bench, level: str) -> None:
    """Both streams, the exit status and the level are told."""
    result = confined.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_code, result.exit_reason) == (3, ExitReason.NONZERO_EXIT)
    log = confined.log(result)
    assert (log["stdout"], log["stderr"]) == (b"out\n", b"err\n")
    assert result.exit.isolation["level"] == level


def test_a_signal(confined: Bench) -> None:
    """A command that a signal ends is told from one that exits."""
    result = confined.run(["sh", "-c", "kill -SEGV $$"])
    assert result.exit_reason is ExitReason.SIGNALED
    assert result.exit.signal == signal.SIGSEGV


def test_a_program_that_does_not_exist(confined: Bench) -> None:
    """It is a failed start, with the name."""
    started = Started(confined, lambda: confined.run(["no-such-program"]))
    with pytest.raises(Exception, match="no-such-program"):
        started.result()


def test_a_cancel(confined: Bench) -> None:
    """It ends the whole tree."""
    mark = new_mark("cancel")
    started = confined.start(["sh", "-c", f"echo ready; sleep 1000 & sleep 1000; : {mark}"])
    started.await_output(b"ready")
    confined.supervisor.pipeline.cancel(started.command.id)
    assert started.result().exit_reason is ExitReason.CANCELLED
    assert not carrying(mark)


def test_a_timeout(confined: Bench) -> None:
    """It names the limit."""
    result = confined.run(["sleep", "1000"], limits=Limits(wall_seconds=0.5))
    assert (result.exit_reason, result.exit.limit) == (ExitReason.TIMED_OUT, "wall_seconds")


def test_silence(confined: Bench) -> None:
    """So does a limit of silence."""
    result = confined.run(["sleep", "1000"], limits=Limits(idle_seconds=0.5))
    assert (result.exit_reason, result.exit.limit) == (ExitReason.IDLE_TIMED_OUT, "idle_seconds")


def test_a_cap_of_output(confined: Bench) -> None:
    """The log holds what was within the cap."""
    result = confined.run(["sh", "-c", "yes"], limits=Limits(output_bytes=100_000))
    assert (result.exit_reason, result.exit.limit) == (ExitReason.LIMIT_EXCEEDED, "output_bytes")
    assert len(confined.log(result)["stdout"]) <= 100_000


def test_standard_input(confined: Bench) -> None:
    """Given text arrives, and ends."""
    result = confined.run(["cat"], stdin_text="hello")
    assert confined.log(result)["stdout"] == b"hello"


def test_a_terminal(confined: Bench) -> None:
    """The command has one, of the usual size, and controls it."""
    result = confined.run(["sh", "-c", "test -t 0 && stty size && echo controls > /dev/tty"], tty=True)
    assert confined.log(result)["stdout"].split() == [b"24", b"80", b"controls"], result.exit.message


def test_children_that_are_left(confined: Bench) -> None:
    """They end with the command, which has succeeded."""
    mark = new_mark("left")
    result = confined.run(["sh", "-c", f"(setsid sh -c 'sleep 1000; : {mark}' >/dev/null 2>&1 &) ; echo done"])
    assert (result.exit_code, result.exit_reason) == (0, ExitReason.EXITED)
    eventually(lambda: not carrying(mark), what="the end of what was left")


def test_a_folder_and_variables(confined: Bench) -> None:
    """The command runs where it was told, with the variables that it was given."""
    (confined.workspace / "below").mkdir()
    result = confined.run(["sh", "-c", "pwd; echo $GIVEN; echo x > file"], cwd=Path("below"), env={"GIVEN": "value"})
    assert confined.log(result)["stdout"].split() == [os.fsencode(confined.workspace / "below"), b"value"]
    assert (confined.workspace / "below/file").read_text() == "x\n"
    assert (confined.workspace / "below/file").stat().st_uid == os.geteuid()


def test_limits_of_one_process(confined: Bench) -> None:
    """Files, processor time and file sizes are limited."""
    text = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE)[0], r.getrlimit(r.RLIMIT_FSIZE)[0])"
    result = confined.run(python(text), limits=Limits(open_files=77, file_size_bytes=4096))
    assert confined.log(result)["stdout"].split() == [b"77", b"4096"]


def test_nothing_is_mounted_when_it_has_ended(confined: Bench) -> None:
    """Mounts of a command are its own."""
    confined.run(["true"])
    before = _mounts()
    for _ in range(3):
        confined.run(["true"])
    assert _mounts() <= before


def test_many_commands_one_after_the_other(confined: Bench) -> None:
    """The keeper serves them all."""
    assert [confined.run(["sh", "-c", f"exit {number}"]).exit_code for number in range(12)] == list(range(12))


@pytest.mark.parametrize("end", ["cancel", "keeper_death"])
@pytest.mark.parametrize("artist", ARTISTS)
def test_nothing_outlives_the_end(confined: Bench, level: str, artist: str, end: str) -> None:
    """No process of a tree that does not want to end is left."""
    if level == "none":
        pytest.skip("see test_escape.py")
    escape(confined, artist, end)


def test_the_death_of_the_first_process_of_the_namespaces(confined: Bench, level: str) -> None:
    """Its command ends with it, once, as killed."""
    if level != "namespace":
        pytest.skip("there is none")
    mark = new_mark("init")
    started = confined.start(["sh", "-c", f"echo ready; sleep 1000; : {mark}"])
    started.await_output(b"ready")
    inits = {parent for pid in carrying(mark) if _name(parent := _parent(pid)) == "ds-init"}
    if not inits:
        pytest.skip("the keeper's own namespace holds it")
    for pid in inits:
        os.kill(pid, signal.SIGKILL)
    result = started.result()
    assert result.status is CommandStatus.FAILED
    eventually(lambda: not carrying(mark), what="the end of its processes")


def _parent(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


# Bombs: the limit ends or holds each, and another command runs meanwhile and afterwards.
_BOMBS = {
    "descriptors": ("import os\ntry:\n  while True: os.dup(0)\nexcept OSError as e: print(e.errno)", b"24"),
    "file": (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try:\n  with open('big', 'wb', buffering=0) as f:\n    while True: f.write(bytes(1 << 16))\n"
        "except OSError as e: print(e.errno)",
        b"27",
    ),
    "address-space": ("try: bytearray(1 << 40)\nexcept MemoryError: print('refused')", b"refused"),
}


@pytest.mark.parametrize("bomb", _BOMBS)
def test_a_bomb_is_bounded(confined: Bench, bomb: str) -> None:
    """The limit holds, and a neighbour runs."""
    text, expected = _BOMBS[bomb]
    result = confined.run(python(text), limits=Limits(open_files=64, file_size_bytes=MIB, memory_bytes=2048 * MIB))
    assert confined.log(result)["stdout"].split() == [expected]
    assert confined.run(["true"]).exit_code == 0


@pytest.mark.parametrize("name", ["process", "namespace"])
def test_out_of_memory(memory_bench: Bench, name: str) -> None:
    """The counter of the control group is read at every level."""
    read = (str(ROOT), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    confined = Bench(
        memory_bench.root.with_name("confined"),
        "cgroup",
        isolation=IsolationConfig(elsewhere=cast(Level, name), read=read),
    )
    try:
        result = confined.run(program("hog.py", "memory", 256 * MIB), limits=Limits(memory_bytes=48 * MIB))
        assert (result.exit_reason, result.exit.limit) == (ExitReason.OUT_OF_MEMORY, "memory_bytes")
        assert result.exit.isolation["level"] == name
    finally:
        confined.close()


@pytest.mark.parametrize("name", ["process", "namespace"])
def test_a_bomb_of_processes(memory_bench: Bench, name: str) -> None:
    """The group's limit stops the forks, a neighbour runs meanwhile, and a cancel ends them all."""
    read = (str(ROOT), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    confined = Bench(
        memory_bench.root.with_name("confined"),
        "cgroup",
        isolation=IsolationConfig(elsewhere=cast(Level, name), read=read),
    )
    mark = new_mark("bomb")
    text = (
        "import os, sys, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(1000)\n"
        "  except OSError:\n    print('full', flush=True); time.sleep(1000)"
    )
    try:
        started = confined.start(python(text, mark), limits=Limits(pids=30))
        started.await_output(b"full")
        assert len(carrying(mark)) <= 31
        assert confined.run(["true"]).exit_code == 0
        confined.supervisor.pipeline.cancel(started.command.id)
        assert started.result().exit_reason is ExitReason.CANCELLED
        assert not carrying(mark)
    finally:
        confined.close()
