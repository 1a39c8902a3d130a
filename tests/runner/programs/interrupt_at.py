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
from debug_server.runner.deferred_signals import await_readable
from debug_server.runner.running_command import RunningCommand
from tests.running import Bench, carrying

WATCHED = tuple(
    f"{Path(runner.__file__).parent}/{name}.py"
    for name in (
        *("worker", "pipeline", "launch", "running_command", "run_dirs", "keeper_pool", "keeper_connection"),
        *("deferred_signals", "preparation"),
    )
)
LINES = 3000  # a bound: there are some hundreds
LOOK_EVERY = 0.005
STRIDE = 7


class Lines:
    """Counts the lines that run in the watched files, and interrupts at one of them."""

    def __init__(self, stop_at: int, waited: threading.Event) -> None:
        self._left = stop_at
        self._waited = waited
        self.late = False  # it came when the command had been waited for

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """As ``sys.settrace`` wants it."""
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.late = self._waited.is_set()
                signal.raise_signal(signal.SIGINT)
        return self.trace

    @property
    def reached(self) -> bool:
        """Whether the line came."""
        return self._left <= 0


class Impatience(threading.Thread):
    """Interrupts the main thread once it waits for the command's end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.waited = threading.Event()
        self._over = threading.Event()

    def run(self) -> None:
        """Look at what the main thread does."""
        while not self._over.wait(LOOK_EVERY):
            if _waits(sys._current_frames().get(threading.main_thread().ident or 0)):
                self.waited.set()
                os.kill(os.getpid(), signal.SIGINT)
                return

    def end(self) -> None:
        """No interrupt follows."""
        self._over.set()
        self.join()
        time.sleep(0.001)  # one that was sent is delivered here


def _waits(frame: FrameType | None) -> bool:
    """Whether that is the wait for the end of a command, in the call that waits."""
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        if frame.f_code is RunningCommand.wait.__code__:
            return await_readable.__name__ in names
        frame = frame.f_back
    return False


def attempt(bench: Bench, line: int, mark: str) -> Lines:
    """One command with an interrupt at that line, or, where it comes later than that, before it, too."""
    impatience = Impatience()
    lines = Lines(line, impatience.waited)
    impatience.start()
    returned = False
    sys.settrace(lines.trace)
    try:
        try:
            bench.run(["sleep", mark])
            returned = True
        finally:
            sys.settrace(None)
            impatience.end()
    except KeyboardInterrupt:
        pass
    assert not returned, f"line {line}: it was not interrupted"
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
        rows = bench.store.commands.in_session(bench.session.id)[1:]
        ends = sorted({str(row.exit_reason) for row in rows})
        sys.stdout.write(json.dumps({"lines": waited_for, "all": line, "ends": ends}))
    finally:
        bench.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
