"""Finds the known name that a misspelt name resembles."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the ``known`` names, upper and lower case being equal; None if none is similar."""
    from difflib import get_close_matches  # only where a name is wrong

    by_lower = {item.lower(): item for item in known}
    return next((by_lower[item] for item in get_close_matches(name.lower(), by_lower, n=1)), None)
