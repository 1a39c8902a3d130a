"""Ctrl-C between any two lines: the command is ended, its row says so, and nothing of it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import PROGRAMS, ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_an_interrupt_at_any_line_leaves_nothing(tmp_path: Path) -> None:
    """From the call to the wait for the end each line in turn is the one at which Ctrl-C comes; a second one may come
    while the first does its work."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "interrupt_at.py"), str(tmp_path / "bench")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=280,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["all"] > seen["lines"] > 50 and seen["ends"] == ["cancelled"], seen


DROPPED = """
import os, signal, time
from debug_server.runner.deferred_signals import defer_signals, interruptible
from debug_server.surfaces.cli.dropped import send_dropped_again

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass

send_dropped_again()
try:
    with defer_signals(), interruptible():
        Late()
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_python_drops_comes_again_in_a_held_stretch() -> None:
    """Raised in a destructor it changes nothing; what is sent in its stead is not held back for it."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=280,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
