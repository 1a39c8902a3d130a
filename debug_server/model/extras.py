"""The command that adds an extra to this installation."""

from __future__ import annotations

import sys
from pathlib import Path

# Files that the tools leave in the environments that they make for one program.
_TOOLS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}


def install_command(extra: str, prefix: str = sys.prefix) -> str:
    """By the tool that installed debug-server into ``prefix``: another one would add it somewhere else."""
    tool = next((command for file, command in _TOOLS.items() if (Path(prefix) / file).exists()), "pip install")
    return f"{tool} 'debug-server[{extra}]'"
