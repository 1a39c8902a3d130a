"""Asks a program a short question (``--version``, ``--help``) and waits for its answer, not for ever."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

_MOST = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """What a program answered."""

    status: int | None  # None: it could not be started, or did not end in time
    text: str  # the beginning of its stdout, or why there is none


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program is, by the PATH of ``environ``; None when it is nowhere."""
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def ask_program(argv: Sequence[str], *, environ: Mapping[str, str], seconds: float) -> ProbeAnswer:
    """Run it in a session of its own; whatever it started in it is gone afterwards."""
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
        return ProbeAnswer(status=None, text=f"{argv[0]}: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return ProbeAnswer(status=None, text=f"no answer within {seconds:g} s")
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    return ProbeAnswer(status=process.returncode, text=output[:_MOST].decode("utf-8", "replace").strip())
