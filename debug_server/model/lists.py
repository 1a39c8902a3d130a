"""Lists of texts, where a text by itself would be taken for the list of its letters."""

from __future__ import annotations

from collections.abc import Sequence

from debug_server.errors import InvalidInputError

_SHOWN = 80


def check_list(value: Sequence[str], *, what: str) -> list[str]:
    """The items of ``value``; one text or bytes, which Python would take apart, is refused."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(f"{what} {_shown(value)} is one text: write a list of texts, such as [{_shown(value)}]")
    return list(value)


def check_argv(value: Sequence[str]) -> list[str]:
    """A program and its arguments; a line for a shell is refused, because nobody would split it as a shell does."""
    if isinstance(value, str | bytes):
        raise InvalidInputError(
            f"argv {_shown(value)} is one text: write a list such as ['ls', '-l'],"
            ' or ["sh", "-c", text] for a line that a shell is to read',
            field="argv",
        )
    return list(value)


def _shown(value: str | bytes) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
