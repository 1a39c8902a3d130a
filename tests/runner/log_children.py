"""Starting the log programs as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """One of ``programs`` with the package on its path; use it as a context manager."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
