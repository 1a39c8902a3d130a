"""A command that leaves its control group is ended all the same, and the record tells."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from debug_server.model import ExitReason
from debug_server.runner.keeper.linux import cap_sys_admin
from tests.runner.escapes import start_ready
from tests.running import Bench, carrying, eventually, new_mark, program

pytestmark = pytest.mark.skipif(not cap_sys_admin(), reason="only a privileged user can mount control groups")


def test_what_left_the_group_ends_with_the_command(memory_bench: Bench) -> None:
    """The first process exits with status 0: the daemon outside of the group is ended and counted."""
    mark = new_mark("left")
    result = memory_bench.run(program("leave_group.py", "groups", mark, "--leave"))
    assert result.exit_reason is ExitReason.EXITED
    assert not carrying(mark)
    assert result.exit.evidence["left_group"] == 1


@pytest.mark.parametrize("end", ["cancel", "timeout"])
def test_what_left_the_group_ends_with_the_tree(memory_bench: Bench, end: str) -> None:
    """After a cancel or a timeout nothing is left, within the group or outside of it."""
    mark = new_mark("left")
    argv = program("leave_group.py", "groups", mark)
    if end == "cancel":
        started = memory_bench.start(argv)
        started.await_output(b"ready")
        memory_bench.supervisor.pipeline.cancel(started.command.id)
    else:
        started = start_ready(memory_bench, argv, seconds=3.0)
    result = started.result()
    assert result.exit_reason is (ExitReason.CANCELLED if end == "cancel" else ExitReason.TIMED_OUT)
    assert not carrying(mark)
    assert result.exit.evidence["left_group"] == 1


def test_what_left_the_group_ends_with_the_keeper(memory_bench: Bench) -> None:
    """The keeper and its fork server are killed: what is outside of the group carries the command's mark and ends."""
    mark = new_mark("left")
    started = memory_bench.start(program("leave_group.py", "groups", mark))
    started.await_output(b"ready")
    process = memory_bench.supervisor.pool._process
    assert process is not None
    handle = started.handle()
    groups = [Path(path) for path in handle["tree"].get("groups", {}).values()]
    os.kill(process.pid, signal.SIGKILL)
    os.kill(handle["keeper"]["pid"], signal.SIGKILL)
    assert started.result().exit_reason is ExitReason.LOST
    eventually(lambda: not carrying(mark), what="the end of what left the group")
    assert not any(group.exists() for group in groups), "the other groups of what left one could not be removed"


def test_a_command_that_stays_is_not_said_to_have_left(memory_bench: Bench) -> None:
    """Daemons within the group are leftovers, and a pre-kill hook is none of the command's."""
    mark = new_mark("stayed")
    assert "left_group" not in memory_bench.run(program("escape.py", "double_fork", mark, "--leave")).exit.evidence
    started = memory_bench.start(program("escape.py", "setsid", mark), pre_kill=["sleep", "0.2"])
    started.await_output(b"ready")
    memory_bench.supervisor.pipeline.cancel(started.command.id)
    assert "left_group" not in started.result().exit.evidence
