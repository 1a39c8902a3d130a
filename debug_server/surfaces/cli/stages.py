"""The progress of ``run --repo``: one line for each stage, live on a terminal, plain in a pipe.

    [debug-server] mirror: click from /srv/click in 0.812 s
    [debug-server] workspace: 1f2e3d4c5b6a in 0.004 s
    [debug-server] patch: applied 0a1b2c3d4e5f.patch in 0.006 s
    [debug-server] environment: reused 77c1f0a2 in 0.002 s
    [debug-server] run: pytest -q

The last three come from the command's own log, where they are written as they happen.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from debug_server.surfaces.cli.output import without_controls
from debug_server.surfaces.cli.standard_streams import write_stderr

_CLEAR_LINE = "\r\x1b[K"  # to the beginning of the line, which is emptied


def stage(name: str, text: str) -> None:
    """Print a stage."""
    write_stderr(f"[debug-server] {name}: {without_controls(text)}")


@contextlib.contextmanager
def timed_stage(name: str, beginning: str) -> Iterator[Callable[[str], None]]:
    """Print a stage and its duration; call the yielded function with its result. A terminal shows its start too."""
    live = sys.stderr.isatty()
    clear = _CLEAR_LINE if live else ""
    beginning = without_controls(beginning)
    begun, words = time.monotonic(), [beginning]
    if live:
        write_stderr(f"[debug-server] {name}: {beginning} …", end="")
    try:
        yield words.append
    except BaseException:
        write_stderr(f"{clear}[debug-server] {name}: {beginning} failed after {time.monotonic() - begun:.3f} s")
        raise
    write_stderr(f"{clear}[debug-server] {name}: {without_controls(words[-1])} in {time.monotonic() - begun:.3f} s")
