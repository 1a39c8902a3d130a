"""Decodes a request's path, query and body into the message of its operation."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel
from pydantic_core import from_json
from starlette.requests import HTTPConnection, Request

from debug_server.errors import FieldViolation, InvalidInputError, UnsupportedMediaTypeError
from debug_server.messages.faults import validated
from debug_server.nearest import nearest

M = TypeVar("M", bound=BaseModel)
_WITH_TOKEN = frozenset({"", "application/x-www-form-urlencoded"})  # accepted together with a token
_KINDS = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
_DIGITS = 19  # of the largest number that a path may hold


def from_query(connection: HTTPConnection, message: type[M], **extra: Any) -> M:
    """Decode a message from the path and the query; a list is a repeated name, or one value with commas."""
    query, lists = connection.query_params, _lists_of(message)
    fields: dict[str, Any] = dict(query)
    for name in fields:
        if len(values := query.getlist(name)) > 1:
            if name not in lists and len(set(values)) > 1:
                raise InvalidInputError(f"{name}: given twice in the query: leave one out", field=name)
            fields[name] = values if name in lists else values[0]
    if connection.scope["type"] == "websocket":
        fields.pop("token", None)
    for name, value in connection.path_params.items():
        if fields.setdefault(name, value) != value:
            text = f"{name} is {value} in the path and {fields[name]!r} in the query: leave one out"
            raise InvalidInputError(text, field=name)
    return validated(message, {**fields, **extra}, whole="query")


@cache
def _lists_of(message: type[BaseModel]) -> frozenset[str]:
    """The fields of a message that hold lists."""
    return frozenset(name for name, field in message.model_fields.items() if get_origin(field.annotation) is list)


async def from_body(request: Request, message: type[M]) -> M:
    """Decode a message from the path and a JSON body; values are not converted."""
    refuse_query(request, message)
    fields = await json_object(request)
    for name, text in request.path_params.items():
        value = _number(text)
        if fields.setdefault(name, value) != value:
            told = f"{name} is {text} in the path and {fields[name]!r} in the body: leave one out"
            raise InvalidInputError(told, field=name)
    return validated(message, fields, strict=True)


def refuse_query(request: Request, message: type[BaseModel]) -> None:
    """InvalidInputError for a query where the fields belong into the body."""
    for name in request.query_params:
        meant = nearest(name, message.model_fields)
        advice = f"send {meant!r} in the JSON body" if meant else "this request has no query parameters"
        violation = FieldViolation(field=name, reason=f"unknown query parameter: {advice}")
        raise InvalidInputError(violation.message, violations=[violation])


async def json_object(request: Request) -> dict[str, Any]:
    """The body, which must be a JSON object or empty."""
    data = await request.body()
    if not data:
        return {}
    _check_type(request)
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"the body must be a JSON object, not {_KINDS.get(type(value), 'a number')}")
    return value


def _check_type(request: Request) -> None:
    """UnsupportedMediaTypeError for a body that may come from a page of another site.

    A browser sends text/plain, forms and bodies without a type to any site without a preflight request, but never with
    a token in a header. ``curl -d`` declares its JSON as a form: that is accepted together with a token.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if kind in _WITH_TOKEN and "authorization" in request.headers:
        return
    raise UnsupportedMediaTypeError(
        f"the body's content type is {kind or 'missing'}: send `Content-Type: application/json`"
    )


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else text
