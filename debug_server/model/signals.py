"""Signals by number or name."""

from __future__ import annotations

import signal

from debug_server.errors import InvalidInputError


def signal_number(text: str) -> int:
    """From ``9``, ``KILL`` or ``SIGKILL``."""
    if text.isascii() and text.isdigit():
        return int(text)
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return signal.Signals[name].value
    except KeyError as error:
        raise InvalidInputError(f"signal {text!r} is not known: use a number or a name such as INT") from error
