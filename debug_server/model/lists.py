"""Checks lists of strings, where Python would accept one string as a list of characters."""

from __future__ import annotations

from collections.abc import Sequence

from debug_server.errors import InvalidInputError

_SHOWN = 80


def check_list(value: Sequence[str], *, what: str) -> list[str]:
    """The items of ``value``; InvalidInputError for a single string or bytes."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(f"{what} {_shown(value)} is a string: write a list, such as [{_shown(value)}]")
    return list(value)


def check_argv(value: Sequence[str]) -> list[str]:
    """A program and its arguments; InvalidInputError for one shell command line, which would not be split."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(
            f"argv {_shown(value)} is a string: write a list such as ['ls', '-l'],"
            ' or ["sh", "-c", line] for a shell command line',
            field="argv",
        )
    return list(value)


def _shown(value: str | bytes) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
