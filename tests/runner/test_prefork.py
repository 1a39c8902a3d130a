"""The preforked child, before it becomes the command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

# A keeper's process has one thread: as it forks without Python's knowledge, no other may wait for the interpreter.
LATE_CHILD = """
import os, signal, sys
from debug_server.runner.keeper.linux import clone
from debug_server.runner.keeper.prefork import Stdio
from debug_server.runner.keeper.slot import fork_child

number, stdio, (ready, go) = int(sys.argv[1]), Stdio(), os.pipe()
stdio.open_stdin()
signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else lambda *_: None)  # as in a keeper

def fork():
    pid = clone()
    if pid == 0:
        os.read(ready, 1)  # it gets no processor yet
    return pid

pid, orders = fork_child(stdio, None, fork)
os.kill(pid, number)
os.write(go, b"x")
orders.close()  # who has not heard the signal ends with status 0
print(-os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_before_the_child_runs_is_not_lost(number: int) -> None:
    """It ends the child, although the keeper handles or ignores it; the keeper's own signals are not held back."""
    done = subprocess.run(
        [sys.executable, "-c", LATE_CHILD, str(int(number))], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout, done.returncode) == (f"{int(number)} set()\n", 0), done.stderr
