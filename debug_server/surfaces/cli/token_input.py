"""Reads a token in ways that other users of the machine cannot see."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from debug_server.errors import InvalidInputError
from debug_server.surfaces.cli.output import print_notice

_MAX_BYTES = 4096
_VISIBLE = (
    "other users of this machine can read the token in --token: give --token - and enter it, --token-file FILE, or the "
    "variable DEBUG_SERVER_TOKEN"
)

TokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="-",
        help="give `-`, then enter the token or pipe it in: other users can see arguments",
    ),
]
TokenFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="a file that holds the token")]


def given_token(token: str | None, file: Path | None) -> str | None:
    """The token of either option; None if neither is given."""
    if token is not None and file is not None:
        raise InvalidInputError("--token and --token-file cannot be given together: leave one out")
    if file is not None:
        return _checked(_read(file), f"--token-file {file}")
    if token not in (None, "-"):
        print_notice(_VISIBLE)
    return _checked(_prompt() if token == "-" else token, "--token") if token is not None else None


def _checked(token: str, source: str) -> str:
    if not token.strip():
        raise InvalidInputError(f"{source}: no token was entered")
    return token.strip()


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"--token-file {str(file)!r} cannot be read: {error}") from error


def _prompt() -> str:
    """Ask on the terminal without echo, or read one line of stdin; the rest of stdin is left for the command."""
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Token: ")
    line = b""
    while len(line) < _MAX_BYTES and (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode("ascii", "replace")
