"""The kinds of values of settings: what is accepted, and its description for messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.model.limits import parse_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a value must be; ``check`` and ``read`` raise ValueError for anything else."""

    expected: str  # completes "must be …"
    check: Callable[[Any], Any]  # the value as a file has it -> the value of the setting
    read: Callable[[str], Any] = str  # text of a variable or flag -> the value as a file has it


def _require(holds: bool, value: Any) -> Any:
    if not holds:
        raise ValueError(value)
    return value


def _text(value: Any) -> Any:
    return _require(isinstance(value, str) and value.strip() != "" and "\0" not in value, value)


def _any_text(value: Any) -> Any:
    return _require(isinstance(value, str) and "\0" not in value, value)


def _path(value: Any) -> Path:
    try:
        return Path(_text(value)).expanduser()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise ValueError(value) from error


def _texts(value: Any) -> tuple[str, ...]:
    _require(isinstance(value, list) and all(isinstance(item, str) and "\0" not in item for item in value), value)
    return tuple(value)


def _table(value: Any) -> dict[str, str]:
    _require(isinstance(value, Mapping) and all(isinstance(item, str) for item in value.values()), value)
    return dict(value)


TEXTS = Kind(expected="a list of strings", check=_texts)
LIST = Kind(
    expected="a list of strings (in a variable: separated by ':')",
    check=_texts,
    read=lambda text: [item for item in text.split(":") if item],
)
TABLE = Kind(expected="a table of strings", check=_table)
TEXT = Kind(expected="a non-empty string", check=_text)
ANY_TEXT = Kind(expected="a string", check=_any_text)
PATH = Kind(expected="a path", check=_path)


def _read_flag(text: str) -> Any:
    return {
        "true": True,
        "1": True,
        "on": True,
        "yes": True,
        "false": False,
        "0": False,
        "off": False,
        "no": False,
    }.get(text.strip().lower(), text)


FLAG = Kind(expected="true or false", check=lambda value: _require(isinstance(value, bool), value), read=_read_flag)


def choice(*names: str) -> Kind:
    """One of a few words."""
    return Kind(expected=f"one of {', '.join(names)}", check=lambda value: _require(value in names, value))


def whole(*, minimum: int) -> Kind:
    """A whole number."""

    def check(value: Any) -> Any:
        return _require(isinstance(value, int) and not isinstance(value, bool) and value >= minimum, value)

    return Kind(expected=f"a whole number, {minimum} or more", check=check, read=int)


def number(*, minimum: float | None = None) -> Kind:
    """A number of at least ``minimum``; without ``minimum``, a number above zero."""

    def check(value: Any) -> float:
        _require(isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value), value)
        _require(value > 0 if minimum is None else value >= minimum, value)
        return float(value)

    expected = "a number above zero" if minimum is None else f"a number, {minimum:g} or more"
    return Kind(expected=expected, check=check, read=float)


def size(*, minimum: int, minimum_text: str) -> Kind:
    """Bytes, as a whole number or with a unit."""

    def check(value: Any) -> int:
        count = parse_size(value) if isinstance(value, str) else value
        _require(isinstance(count, int) and not isinstance(count, bool) and count >= minimum, value)
        return int(count)

    return Kind(expected=f'a size such as "64M" or a number of bytes, {minimum_text} or more', check=check)
