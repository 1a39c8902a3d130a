"""Parses values of a command line: pairs, durations, patches and comma-separated lists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debug_server.errors import InvalidInputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MAX_PATCH_BYTES = 16 << 20  # what the server takes


def pairs(items: Sequence[str] | None, *, flag: str) -> dict[str, str]:
    """``key=value`` each."""
    found = {}
    for item in items or ():
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise InvalidInputError(f"{flag} {item!r} must be KEY=VALUE")
        found[name] = value
    return found


def json_pairs(items: Sequence[str] | None, *, flag: str) -> dict[str, Any]:
    """``key=value`` pairs; a value that is valid JSON is decoded."""
    return {name: _value(text) for name, text in pairs(items, flag=flag).items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def duration(text: str | None, *, flag: str) -> float | None:
    """Seconds from ``90``, ``15m``, ``2h`` or ``7d``."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"{flag} {text!r} must be a number of seconds, or a duration such as 15m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def patch_bytes(path: Path) -> bytes:
    """A patch file, or a pipe; ``-`` is stdin."""
    try:
        with Path("/dev/stdin" if str(path) == "-" else path).open("rb") as file:
            data = file.read(_MAX_PATCH_BYTES + 1)
    except OSError as error:
        raise InvalidInputError(f"patch {str(path)!r} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_PATCH_BYTES:
        raise InvalidInputError(
            f"patch {str(path)!r} has more than {_MAX_PATCH_BYTES >> 20} MiB: commit the large files"
        )
    return data


def patch_text(path: Path | None) -> str | None:
    """A patch as text."""
    if path is None:
        return None
    try:
        return patch_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"patch {str(path)!r} is not UTF-8 text: {error.reason}") from error


def listed(items: Sequence[str] | None) -> list[str]:
    """The items of a repeatable option, each of which may be a comma-separated list."""
    return [name for item in items or () for name in item.split(",") if name]
