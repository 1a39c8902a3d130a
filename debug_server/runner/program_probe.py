"""Runs a program with an option such as ``--version`` or ``--help``, with a timeout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from debug_server.errors import ResourcesExhaustedError

_MAX_OUTPUT = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What a program answered."""

    status: int | None  # None: not started, or timed out
    text: str  # the beginning of stdout, or the error


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """The path of a program by the PATH of ``environ``; None if not found."""
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def ask_program(argv: Sequence[str], *, environ: Mapping[str, str], seconds: float) -> ProbeAnswer:
    """Run it in a new session, which is killed afterwards; ResourcesExhaustedError if no process can be created."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        if (exhausted := ResourcesExhaustedError.of(error)) is not None:  # the program may be installed all the same
            raise exhausted from error
        return ProbeAnswer(status=None, text=f"{argv[0]}: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return ProbeAnswer(status=None, text=f"no answer within {seconds:g} s")
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return ProbeAnswer(status=process.returncode, text=output[:_MAX_OUTPUT].decode("utf-8", "replace").strip())
