"""Starts a process that outlives this one: in a new session, with its output in a private file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def start_background(argv: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Start it; the log file is overwritten."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
