"""Path globs of ``triggers``: ``*`` matches within a folder, ``**`` across folders."""

from __future__ import annotations

import re
from functools import lru_cache

from debug_server.errors import InvalidInputError

_MAX_LENGTH = 512


def matches(pattern: str, path: str) -> bool:
    """Whether the pattern matches a path relative to the repository's root."""
    return _compiled(pattern).fullmatch(path) is not None


def check_glob(pattern: str) -> None:
    """InvalidInputError for a pattern that no relative path can match."""
    if len(pattern) > _MAX_LENGTH or pattern.startswith("/") or ".." in pattern.split("/"):
        raise InvalidInputError(f"path {pattern[:60]!r} must be relative to the repository's root, without '..'")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    out, rest = "", pattern
    while rest:
        if rest.startswith("**/"):
            out, rest = out + "(?:[^/]+/)*", rest[3:].removeprefix("**/")
        elif rest.startswith("**"):
            out, rest = out + ".*", rest.lstrip("*")
        elif rest[0] == "*":
            out, rest = out + "[^/]*", rest[1:]
        elif rest[0] == "?":
            out, rest = out + "[^/]", rest[1:]
        else:
            out, rest = out + re.escape(rest[0]), rest[1:]
    return re.compile(out, re.DOTALL)
