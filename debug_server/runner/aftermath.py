"""A program that is run after a command's end to remove what lies outside its process tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from debug_server.runner.child_environment import default_base

_SAID = 400


def run_after(argv: Sequence[str], *, seconds: float) -> str | None:
    """Run it to its end, or for so many seconds; None when it was content, else what it said."""
    try:
        process = subprocess.Popen(
            list(argv),
            cwd="/",
            env=default_base(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]} cannot be started: {error.strerror}"
    with process:
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"{argv[0]} did not end within {seconds:g} s"
        finally:
            # It leads a session: what it started goes with it, and nothing holds its pipe.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return None
    return said.decode("utf-8", "replace").strip()[-_SAID:] or f"{argv[0]} ended with status {process.returncode}"
