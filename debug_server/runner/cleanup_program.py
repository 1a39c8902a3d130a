"""Runs the program that removes what a session left outside its process trees, such as containers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from debug_server.runner.child_environment import default_base

_MAX_MESSAGE = 400


def run_cleanup_program(argv: Sequence[str], *, seconds: float) -> str | None:
    """Run it for at most ``seconds``; None if it ended with status 0, else its error output."""
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
            _, error_output = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return f"{argv[0]} did not end within {seconds:g} s"
        finally:
            # It leads a process group: kill its children too; one may hold the pipe open.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return None
    return (
        error_output.decode("utf-8", "replace").strip()[-_MAX_MESSAGE:]
        or f"{argv[0]} ended with status {process.returncode}"
    )
