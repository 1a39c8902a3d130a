"""Checks names that become file names, and removes credentials from URLs."""

from __future__ import annotations

import re

from debug_server.errors import InvalidInputError

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


def check_name(value: str, *, what: str) -> str:
    """Return ``value`` if it is a valid file name; InvalidInputError for ``..``, slashes, spaces and empty names."""
    if not isinstance(value, str) or not _SAFE.fullmatch(value):
        raise InvalidInputError(
            f"{what} {value!r} cannot be used as a name: "
            "use 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit"
        )
    return value


def without_credentials(text: str) -> str:
    """An address, or a text with addresses in it, without the users and passwords of URLs."""
    return _USERINFO.sub("", text)
