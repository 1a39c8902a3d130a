"""Formatting: ``ruff format`` decides, and black, which some use instead, changes nothing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.running import ROOT

TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]


def test_black_has_the_settings_of_ruff() -> None:
    """The same lines and the same Python; what ruff leaves out, black leaves out."""
    black, ruff = TOOLS["black"], TOOLS["ruff"]
    assert (black["line-length"], black["target-version"]) == (ruff["line-length"], [ruff["target-version"]])
    assert [folder for folder in ruff["extend-exclude"] if folder not in black["extend-exclude"]] == []


def test_black_is_content() -> None:
    """``black`` would change no file of the package."""
    program = Path(sys.executable).with_name("black")
    done = subprocess.run(
        [program, "--check", "--workers", "1", "debug_server"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
