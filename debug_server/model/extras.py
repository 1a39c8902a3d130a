"""The command that adds an extra to this installation."""

from __future__ import annotations

import sys
from pathlib import Path

# Files that each tool writes to the environments that it creates for one program.
_TOOLS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}


def install_command(extra: str, prefix: str = sys.prefix) -> str:
    """The install command of the tool that created ``prefix``; another tool would change another environment."""
    tool = next((command for file, command in _TOOLS.items() if (Path(prefix) / file).exists()), "pip install")
    return f"{tool} 'debug-server[{extra}]'"
