"""Runs every check of the project, even when one fails, and prints the seconds that each took.

The tests spend much of their time waiting, so the other checks run at the same time, one after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")

LINT = {
    "lint": [PYTHON, "-m", "ruff", "check", "--quiet", "."],
    "format": [PYTHON, "-m", "ruff", "format", "--check", "--quiet", "."],
    "types": [PYTHON, "-m", "mypy"],
    "imports": [PYTHON, str(BIN / "lint-imports"), "--no-logo"],
    "dependencies": [PYTHON, "-m", "deptry", "debug_server", "runners", "--no-ansi"],
}
TESTS = {"tests": [PYTHON, "-m", "pytest"]}


def main(which: str, *pytest_arguments: str) -> int:
    """Run the stages of ``lint`` or ``all``; the status is 1 when any failed."""
    began = time.monotonic()
    if which == "lint":
        results = run_stages(LINT)
    else:
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(run_stages, LINT, quiet=True)
            tests = run_stages({"tests": [*TESTS["tests"], *pytest_arguments]})
            results = beside.result() | tests
    print("-- result")
    for name, (status, seconds) in results.items():
        print(f"{name:<8} {'ok' if status == 0 else f'FAILED ({status})':<12} {seconds:7.1f} s")
    print(f"{'all':<21} {time.monotonic() - began:7.1f} s")
    return int(any(status for status, _ in results.values()))


def run_stages(stages: Mapping[str, Sequence[str]], *, quiet: bool = False) -> dict[str, tuple[int, float]]:
    """Run the checks one after the other; returns the status and the seconds of each."""
    return {name: run_stage(name, command, quiet=quiet) for name, command in stages.items()}


def run_stage(name: str, command: Sequence[str], *, quiet: bool) -> tuple[int, float]:
    """Run one check; prints its output as it runs or, with ``quiet``, afterwards and only if the check failed."""
    if not quiet:
        print(f"-- {name}", flush=True)
    began = time.monotonic()
    output, errors = (subprocess.PIPE, subprocess.STDOUT) if quiet else (None, None)
    done = subprocess.run(command, cwd=ROOT, env=environment(), check=False, stdout=output, stderr=errors)
    if quiet and done.returncode:
        print(f"\n-- {name}\n{done.stdout.decode('utf-8', 'replace')}", flush=True)
    return done.returncode, time.monotonic() - began


def environment() -> dict[str, str]:
    """The environment variables of the checks."""
    # PYTHONDONTWRITEBYTECODE would make every pytest worker rewrite, and every server compile, each module again.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Tools such as ruff and mypy are found beside the interpreter, and tests start our own console scripts.
    return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
