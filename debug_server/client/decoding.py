"""From JSON to replies: each field converted as its annotation says, unknown fields of a newer server ignored."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from debug_server.errors import DebugServerError

T = TypeVar("T")
Convert = Callable[[Any], Any]


def decode(reply: type[T], data: Any) -> T:
    """A reply from what was received; DebugServerError when it is something else."""
    if isinstance(data, reply):
        return data
    try:
        found: T = _object(cast(Any, reply))(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DebugServerError(f"the answer is no {reply.__name__}: {type(error).__name__} {error}") from error
    return found


@cache
def _object(cls: type[Any]) -> Convert:
    hints = get_type_hints(cls)
    fields = [(item.name, _converter(hints[item.name]), item) for item in dataclasses.fields(cls)]
    required = {name for name, _, item in fields if item.default is dataclasses.MISSING}

    def build(data: Any) -> Any:
        given = {name: convert(data[name]) for name, convert, _ in fields if name in data or name in required}
        return cls(**given)

    return build


def _converter(hint: Any) -> Convert:
    if hint is datetime:
        return _moment
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _object(hint)
    if get_origin(hint) is list and (inner := _converter(get_args(hint)[0])) is not _same:
        return lambda values: [inner(value) for value in values]
    if get_origin(hint) is types.UnionType and (inner := _converter(get_args(hint)[0])) is not _same:
        return lambda value: None if value is None else inner(value)
    return _same


def _same(value: Any) -> Any:
    return value


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
