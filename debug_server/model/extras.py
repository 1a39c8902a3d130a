"""The optional parts of debug-server, and the command that adds one to this installation."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

EXTRAS = {
    "conda": ("rattler",),
    "otel": ("opentelemetry.sdk",),
    "postgres": ("psycopg",),
    "runners": ("detect_secrets", "markdown_it"),
}
# Files that each tool writes to the environments that it creates for one program. Each makes the environment anew, with
# the extras that its command names and no others.
_TOOLS = {"uv-receipt.toml": "uv tool install", "pipx_metadata.json": "pipx install --force"}


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package that it would be in
        return False


def install_command(extra: str, prefix: str = sys.prefix) -> str:
    """The install command of the tool that created ``prefix``; another tool would change another environment."""
    for file, command in _TOOLS.items():
        if (Path(prefix) / file).exists():
            others = [name for name, modules in EXTRAS.items() if all(map(is_installed, modules))]
            named = ",".join(sorted({extra, *others}))
            return f"{command} 'debug-server[{named}]' (it removes extras that it does not name)"
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if is_installed("pip") else f"uv pip install --python {python}"
    return f"{pip} 'debug-server[{extra}]'"
