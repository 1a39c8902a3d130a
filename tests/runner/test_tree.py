"""A process is signalled as a member of a tree, never as a bare number."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from debug_server.runner.keeper.tree import Tree, signal_member


class _Recycled(Tree):
    """A tree whose member has ended and whose number belongs to another process by the second look."""

    def __init__(self, pid: int) -> None:
        self._looks = iter([[pid], []])

    def pids(self) -> list[int]:
        return next(self._looks)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_recycled_pid_is_not_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    """The process that has the number now is left alone, and the caller learns that the member is gone."""
    tree = _Recycled(sleeper.pid)
    (pid,) = tree.pids()
    with pytest.raises(ProcessLookupError):
        signal_member(tree, pid, signal.SIGKILL)
    assert os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def test_a_member_is_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    """While it is listed it gets its signal."""

    class Listed(Tree):
        def pids(self) -> list[int]:
            return [sleeper.pid]

    signal_member(Listed(), sleeper.pid, signal.SIGKILL)
    assert sleeper.wait(30) == -signal.SIGKILL
