"""The input schemas that tools are listed with: what a model needs to call them, and nothing else.

A model reads every schema before its first call. Left out are titles, empty defaults, the null of optional arguments,
and bounds that no caller comes near; the server checks all of them, and names the nearest argument for an unknown one.
"""

from __future__ import annotations

from typing import Any

from debug_server.messages import Request

_DROPPED = frozenset(
    {"title", "maxLength", "minLength", "maxItems", "minItems", "pattern", "not", "exclusiveMinimum", "$defs"}
)
_HUGE = 1 << 31
_EMPTY: tuple[Any, ...] = (None, [], {}, False, "")


def input_schema(request: type[Request]) -> dict[str, Any]:
    """The schema of a request's arguments."""
    schema = request.model_json_schema()
    found: dict[str, Any] = _short(schema, schema.get("$defs", {}))
    found.pop("description", None)  # the tool has its own
    return {"properties": {}, **found}


def _short(schema: Any, shared: dict[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = shared[schema["$ref"].rpartition("/")[2]]
        return _short({**target, **{name: value for name, value in schema.items() if name != "$ref"}}, shared)
    if options := [item for item in schema.get("anyOf", ()) if item.get("type") != "null"]:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        if len(options) == 1:
            return _short({**options[0], **rest}, shared)
        return _short({**rest, "type": [item["type"] for item in options]}, shared)
    return {
        name: _properties(value, shared) if name == "properties" else _short(value, shared)
        for name, value in schema.items()
        if not _is_noise(name, value)
    }


def _properties(properties: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    return {name: _short(schema, shared) for name, schema in properties.items()}


def _is_noise(name: str, value: Any) -> bool:
    match name:
        case "default":
            return value in _EMPTY
        case "minimum":
            return bool(value <= 1)
        case "maximum":
            return bool(value >= _HUGE)
        case "additionalProperties":
            return isinstance(value, bool)
        case _:
            return name in _DROPPED
