"""Runs every check of the project, all of them even when one fails, and prints the seconds of each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")

LINT = {
    "lint": [PYTHON, "-m", "ruff", "check", "--quiet", "."],
    "format": [PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."],
    "types": [PYTHON, "-m", "mypy"],
    "imports": [PYTHON, str(BIN / "lint-imports"), "--no-logo"],
}
TESTS = {"tests": [PYTHON, "-m", "pytest"]}


def main(which: str, *pytest_arguments: str) -> int:
    """Run the stages of ``lint`` or ``all``; the status is 1 when any failed."""
    stages = LINT if which == "lint" else LINT | {"tests": [*TESTS["tests"], *pytest_arguments]}
    results = {name: run_stage(name, command) for name, command in stages.items()}
    print("-- result")
    for name, (status, seconds) in results.items():
        print(f"{name:<8} {'ok' if status == 0 else f'FAILED ({status})':<12} {seconds:7.1f} s")
    print(f"{'all':<21} {sum(seconds for _, seconds in results.values()):7.1f} s")
    return int(any(status for status, _ in results.values()))


def run_stage(name: str, command: list[str]) -> tuple[int, float]:
    """Run one check with its output passed through; returns its status and seconds."""
    print(f"-- {name}", flush=True)
    began = time.monotonic()
    # Tools such as ruff and mypy are found beside the interpreter, and tests start our own console scripts.
    environ = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    status = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    return status, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
