"""Renders the declared settings: ``docs/settings.md``, ``.env.example``, the limits in ``config/runner.toml``."""

from __future__ import annotations

import re
from pathlib import Path

from debug_server.config.declare import Derived, Setting, settings_of
from debug_server.config.dispatch import DispatchConfig
from debug_server.config.gateway import GatewayConfig
from debug_server.config.runner import RunnerConfig
from debug_server.config.tasks import TasksConfig
from debug_server.config.workers import WorkerConfig
from debug_server.model.limits import LIMITS, Limit, Unit

_TABLES = {
    "Runner (`config/runner.toml`)": RunnerConfig,
    "Host tasks (`config/tasks.toml`)": TasksConfig,
    "Events and runners (variables only)": DispatchConfig,
    "Gateway (`config/gateway.toml`)": GatewayConfig,
    "A worker (`[workers.NAME]` in `config/workers.toml`)": WorkerConfig,
}

_HEAD = """# Settings

Every setting has a key in a file, an environment variable and a default. A variable overrides a file, and a flag
overrides both. Unknown keys and values of a wrong type are refused.

A relative path in a file is resolved against the folder that holds `config/`, if the file is in a folder of that name,
else against the file's own folder. In variables and flags it is resolved against the current directory.
[Where settings and data are found](install.md#where-data-is-stored).

This page is written by `make docs` from the declarations in `debug_server/config/`.
"""


def settings_page() -> str:
    """The whole page: one table for each settings class."""
    return _HEAD + "".join(f"\n## {heading}\n\n{_table(cls)}" for heading, cls in _TABLES.items())


def _table(cls: type) -> str:
    rows = ["| Key | Variable | Default | Meaning |", "|---|---|---|---|", *map(_row, settings_of(cls).values())]
    return "\n".join(rows) + "\n"


def _row(item: Setting) -> str:
    cells = (
        f"`{item.key}`",
        f"`{item.variable}`" if item.variable else "none",
        _default(item),
        f"{item.description} Must be {item.kind.expected}.",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(item: Setting) -> str:
    if isinstance(item.default, Derived):
        return item.default.text
    if item.default is None or item.default == ():
        return "none"
    return f"`{item.default}`" if isinstance(item.default, str | Path) else f"`{item.default!r}`"


def env_example() -> str:
    """``.env.example``: every variable with its default, a description above it."""
    groups = [f"# {heading}\n\n{_variables(cls)}" for heading, cls in _TABLES.items()]
    return "# Every variable with its default; an empty one counts as not set. `make docs` writes this file.\n\n" + (
        "\n".join(groups)
    )


def with_limits(text: str) -> str:
    """A ``runner.toml`` whose section ``[limits]`` shows each limit of the table, commented out."""
    lines = "".join(f"{f'# {limit.setting} = {_example(limit)}':40}# {limit.phrase}\n" for limit in LIMITS.values())
    return re.sub(r"(?<=^\[limits\]\n).*?(?=^$)", lines, text, flags=re.MULTILINE | re.DOTALL)


def _example(limit: Limit) -> str:
    return f'"{limit.example}"' if limit.unit is Unit.BYTES else limit.example


def _variables(cls: type) -> str:
    return "".join(
        f"# {item.description} Must be {item.kind.expected}.\n{item.variable}={_plain(item)}\n\n"
        for item in settings_of(cls).values()
        if item.variable
    )


def _plain(item: Setting) -> str:
    if item.default is None or isinstance(item.default, Derived):
        return ""
    if isinstance(item.default, tuple):
        return ":".join(item.default)
    return str(item.default).lower() if isinstance(item.default, bool) else str(item.default)
