"""The option that passes secrets to a command: declared once, for every command line that gives one variables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from debug_server.errors import InvalidInputError

Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="NAME", help="pass this variable on, and keep its value out of the log"),
]


def secret_variables(names: Sequence[str]) -> dict[str, str]:
    """Their values in our own environment; they are never on a command line, which ``ps`` shows to everybody."""
    if missing := [name for name in names if name not in os.environ]:
        raise InvalidInputError(f"--secret {missing[0]}: this variable is not set: export it first")
    return {name: os.environ[name] for name in names}
