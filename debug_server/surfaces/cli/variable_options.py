"""The options that give a command variables: declared once, for every command line that runs one.

A command does not inherit the caller's variables: each variable that it needs must be named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from debug_server.errors import InvalidInputError

Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="set a variable; without =VALUE, pass on your own value"),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option("--secret", metavar="NAME", help="pass on your variable, and keep its value out of the log"),
]


def given_variables(variables: Sequence[str] | None, secrets: Sequence[str] | None) -> dict[str, str]:
    """The variables of both options, with their values.

    The values of secrets are never on a command line, which ``ps`` shows to everybody.
    """
    found = {}
    for item in variables or ():
        name, sign, value = item.partition("=")
        if not name:
            raise InvalidInputError(f"--env {item!r} must be NAME or NAME=VALUE")
        found[name] = value if sign else _own(name, "--env", ", or give it a value: --env NAME=VALUE")
    return found | {name: _own(name, "--secret") for name in secrets or ()}


def _own(name: str, option: str, otherwise: str = "") -> str:
    if name not in os.environ:
        raise InvalidInputError(f"{option} {name}: this variable is not set: export it first{otherwise}")
    return os.environ[name]
