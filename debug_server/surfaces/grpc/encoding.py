"""Converts the service's replies to messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel

from debug_server.surfaces.grpc.schema import BASE64_FIELDS

M = TypeVar("M", bound=Message)

_EXACT = 2**53  # a double holds every whole number up to here


def message_of(kind: type[M], reply: BaseModel) -> M:
    """The reply as a message; every field of the message is taken from the field of the same name."""
    message = kind()
    _fill(message, _values(reply))
    return message


def _values(reply: BaseModel) -> dict[str, Any]:
    """The fields, also those that are computed from others."""
    return {**vars(reply), **{name: getattr(reply, name) for name in type(reply).model_computed_fields}}


def _fill(message: Message, values: Mapping[str, Any]) -> None:
    for field in cast("list[FieldDescriptor]", message.DESCRIPTOR.fields):
        value = values.get(BASE64_FIELDS.get(field.name, field.name))
        if value is not None:
            _set(message, field, value)


def _set(message: Message, field: FieldDescriptor, value: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is None:
        _set_scalar(message, field, target, value)
    elif _is_map(field.message_type):
        target.update({_clean(name): _scalar(item) for name, item in value.items()})
    elif field.is_repeated:
        for item in value:
            _set_message(target.add(), item)
    else:
        target.SetInParent()
        _set_message(target, value)


def _is_map(kind: Descriptor) -> bool:
    return bool(kind.GetOptions().map_entry)


def _set_scalar(message: Message, field: FieldDescriptor, target: Any, value: Any) -> None:
    if field.is_repeated:
        target.extend(map(_scalar, value))
    else:
        setattr(message, field.name, _scalar(value))


def _set_message(target: Message, value: Any) -> None:
    if isinstance(target, Timestamp):
        _set_time(target, value)
    elif isinstance(target, Struct):
        _set_object(target, value)
    else:
        _fill(target, _values(value) if isinstance(value, BaseModel) else value)


def _set_time(target: Timestamp, value: datetime) -> None:
    target.FromDatetime(value)


def _scalar(value: Any) -> Any:
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    # A file's name may contain bytes that are not UTF-8; protobuf refuses the surrogates for them.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _set_object(target: Struct, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        _set_json(target.fields[_clean(name)], value)


def _set_list(target: ListValue, values: Iterable[Any]) -> None:
    target.SetInParent()
    for value in values:
        _set_json(target.values.add(), value)


def _set_json(target: Value, value: Any) -> None:
    if value is None:
        target.null_value = NULL_VALUE
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT):
        target.number_value = value
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()
        _set_object(target.struct_value, value)
    elif isinstance(value, list | tuple):
        _set_list(target.list_value, value)
    else:
        target.string_value = _clean(str(value))
