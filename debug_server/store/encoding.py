"""Encodes values as columns: times as seconds since the epoch, mappings as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from debug_server.errors import InvalidInputError

encode: Any = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=True).encode
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def decode(text: str) -> Any:
    """Decode text written by ``encode``; twice as fast as ``json.loads``, which also skips white space."""
    return _scan(text, 0)[0]


def epoch(value: datetime) -> float:
    """Seconds since the epoch; InvalidInputError for a time without time zone."""
    if value.tzinfo is None:
        raise InvalidInputError(f"the time {value.isoformat()} has no time zone: pass a datetime in UTC")
    return value.timestamp()


def optional_epoch(value: datetime | None) -> float | None:
    """``epoch``, with None kept."""
    return None if value is None else epoch(value)


def moment(value: float) -> datetime:
    """The inverse of ``epoch``."""
    return datetime.fromtimestamp(value, UTC)


def optional_moment(value: float | None) -> datetime | None:
    """``moment``, with None kept."""
    return None if value is None else datetime.fromtimestamp(value, UTC)


def mapping_text(value: Mapping[str, Any] | None, *, what: str) -> str:
    """The JSON text of a mapping; InvalidInputError for values that JSON cannot hold."""
    if not value:
        return "{}"
    try:
        return str(encode(dict(value)))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} cannot be stored as JSON ({error}): use strings, numbers, lists") from error


def optional_mapping_text(value: Mapping[str, Any] | None, *, what: str) -> str | None:
    """``mapping_text``, with None kept: None means "leave as it is" in updates."""
    return None if value is None else mapping_text(value, what=what)


def mapping_from(text: str) -> dict[str, Any]:
    """The inverse of ``mapping_text``."""
    return {} if text == "{}" else decode(text)
