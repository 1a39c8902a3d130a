"""Decodes the bytes of a request into the service's request; InvalidInputError if it is invalid."""

from __future__ import annotations

import base64
import math
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value

from debug_server.errors import InvalidInputError
from debug_server.messages import ListSessions, Request, WriteStdin
from debug_server.messages.faults import validated
from debug_server.surfaces.grpc.schema import BASE64_FIELDS

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Request)

_EXACT = 2**53  # a double holds every whole number up to here


def parse(kind: type[M], data: bytes) -> M:
    """The message in ``data``."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidInputError(f"the request is not a {kind.DESCRIPTOR.full_name}: {error}") from error


def request_of(kind: type[R], message: Message) -> R:
    """Convert a message to the service's request; unset fields have its defaults."""
    fields = {BASE64_FIELDS.get(name, name): value for name, value in plain(message).items()}
    if kind is WriteStdin:
        fields["encoding"] = "base64"
    if kind is ListSessions:
        fields.setdefault("order", "newest")
    return validated(kind, fields, whole="request")


def plain(message: Message) -> dict[str, Any]:
    """The fields that are set; bytes become base64 text."""
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    return [_single(item) for item in value] if field.is_repeated else _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, Struct):
        return _object(value)
    if isinstance(value, Message):
        return plain(value)
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _object(struct: Struct) -> dict[str, Any]:
    return {name: _json(value) for name, value in struct.fields.items()}


def _json(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            return _number(value.number_value)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _object(value.struct_value)
        case "list_value":
            return [_json(item) for item in value.list_value.values]
        case _:
            return None


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise InvalidInputError(f"JSON has no number {value}: leave it out or send it as text")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value
