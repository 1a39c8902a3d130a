"""Runs a command again and again, with SIGINT at the next line of the code that runs it; writes what it saw."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from debug_server import runner
from tests.running import Bench, carrying

WATCHED = tuple(
    f"{Path(runner.__file__).parent}/{name}.py"
    for name in ("worker", "pipeline", "launch", "launcher", "interrupts", "preparation")
)
LINES = 3000  # a bound: there are some hundreds
PATIENCE = 0.2  # within it the command is waited for
STRIDE = 7


class Lines:
    """Counts the lines that run in the watched files, and interrupts at one of them."""

    def __init__(self, stop_at: int) -> None:
        self._left = stop_at
        self._began = time.monotonic()
        self.late = False  # it came when the command had been waited for

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """As ``sys.settrace`` wants it."""
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.late = time.monotonic() - self._began > PATIENCE
                signal.raise_signal(signal.SIGINT)
        return self.trace

    @property
    def reached(self) -> bool:
        """Whether the line came."""
        return self._left <= 0


def attempt(bench: Bench, line: int, mark: str) -> Lines:
    """One command with an interrupt at that line, or, where it comes later than that, before it, too."""
    lines = Lines(line)
    wait = threading.Timer(PATIENCE, lambda: os.kill(os.getpid(), signal.SIGINT))
    wait.start()
    sys.settrace(lines.trace)
    try:
        bench.run(["sleep", mark])
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError(f"line {line}: it was not interrupted")
    finally:
        sys.settrace(None)
        wait.cancel()
        wait.join()
    assert not carrying(mark), f"line {line}: the command goes on"
    return lines


def main(root: Path) -> None:
    """Each line until the command is waited for, and some of those that its end takes."""
    mark = f"{random.randrange(10_000, 90_000)}.{random.randrange(10**6)}"
    bench = Bench(root)
    try:
        bench.run(["true"])  # the fork server is there, as it is for all but the first command
        line, waited_for = 1, 0
        while (lines := attempt(bench, line, mark)).reached and line < LINES:
            waited_for = waited_for or (line if lines.late else 0)
            line += STRIDE if waited_for else 1
        rows = bench.store.list_commands(bench.session.id)[1:]
        ends = sorted({str(row.exit_reason) for row in rows})
        sys.stdout.write(json.dumps({"lines": waited_for, "all": line, "ends": ends}))
    finally:
        bench.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
