"""Checks lists of strings, where Python would accept one string as a list of characters; paths become strings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from debug_server.errors import InvalidInputError

_SHOWN = 80


def check_list(value: Sequence[str | os.PathLike[str]], *, what: str) -> list[str]:
    """The items of ``value``; InvalidInputError for a single string or bytes."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(f"{what} {_shown(value)} is a string: write a list, such as [{_shown(value)}]")
    if not isinstance(value, Iterable):
        raise InvalidInputError(f"{what} {_shown(value)} is no list: write a list, such as [{_shown(str(value))}]")
    return [os.fspath(item) if isinstance(item, os.PathLike) else item for item in value]


def check_argv(value: Sequence[str | os.PathLike[str]]) -> list[str]:
    """A program and its arguments; InvalidInputError for one shell command line, which would not be split."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(
            f"argv {_shown(value)} is a string: write a list such as ['ls', '-l'],"
            ' or ["sh", "-c", line] for a shell command line',
            field="argv",
        )
    return check_list(value, what="argv")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
