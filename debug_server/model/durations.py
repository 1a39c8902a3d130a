"""Durations as people write them."""

from __future__ import annotations

import re

from debug_server.errors import InvalidInputError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Seconds from ``90``, ``1.5h``, ``15m`` or ``7d``."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(f"{text!r} must be a number of seconds, or a duration such as 15m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2]]
