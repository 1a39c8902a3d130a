"""What is wrong with an invalid request: each field with the reason, the value and an example."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from debug_server.errors import FieldViolation, InvalidInputError
from debug_server.messages.base import SEPARATED, meant_field, refused
from debug_server.messages.fields import FieldDoc, doc_of
from debug_server.nearest import nearest

M = TypeVar("M", bound=BaseModel)
# Values of these fields, and those inside them, may be secrets.
_SECRET_FIELDS = frozenset(
    {"env", "data", "patch", "patch_base64", "settings", "metadata", "prompt", "status_callback_token", "sandbox"}
)
_SHOWN_CHARACTERS = 80  # of a value
_SHOWN_FAULTS = 5
_WHOLE_NUMBER, _NUMBER, _BOOLEAN = "must be a whole number", "must be a number", "must be true or false"
# The library's types of errors in our words; others keep the library's text.
_REASONS = {
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} items",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
}
_CHOICES = ("literal_error", "enum")
_NO_EXAMPLE = frozenset({"unknown_name", "limit_name", "nul"})  # their reasons say what to write


def validated(kind: type[M], fields: object, *, strict: bool | None = None, whole: str = "body") -> M:
    """The fields as a message; InvalidInputError names every wrong one."""
    try:
        return checked(kind, fields, strict=strict)
    except ValidationError as error:
        raise invalid_request(error, kind, whole=whole) from error


def checked(kind: type[M], fields: object, *, strict: bool | None = None) -> M:
    """The fields as a message; ValidationError has every fault, also those of other fields beside an unknown one."""
    try:
        return kind.model_validate(fields, strict=strict)
    except ValidationError as error:
        unknown = [
            item["loc"][0] for item in error.errors() if item["type"] == "unknown_name" and len(item["loc"]) == 1
        ]
        if not unknown or not isinstance(fields, Mapping):
            raise
        found = [*error.errors(), *_other_faults(kind, fields, unknown, strict=strict)]
        raise refused(kind, *map(_init_details, found)) from None


def _other_faults(
    kind: type[BaseModel], fields: Mapping[str, Any], unknown: Sequence[int | str], *, strict: bool | None
) -> list[ErrorDetails]:
    """The faults of the known fields; a field that is missing because its name is misspelt has none."""
    try:
        kind.model_validate({name: value for name, value in fields.items() if name not in unknown}, strict=strict)
    except ValidationError as error:
        meant = {meant_field(str(name), kind.model_fields) for name in unknown}
        of_fields = [item for item in error.errors() if item["loc"]]
        return [item for item in of_fields if item["type"] != "missing" or item["loc"][0] not in meant]
    return []


def _init_details(item: ErrorDetails) -> InitErrorDetails:
    """A fault that was reported, to be reported again."""
    context = item.get("ctx", {})
    kind = PydanticCustomError(item["type"], "{text}", context) if "text" in context else item["type"]
    return InitErrorDetails(type=kind, loc=item["loc"], input=item["input"], ctx=context)


def invalid_request(error: ValidationError, kind: type[BaseModel], *, whole: str = "body") -> InvalidInputError:
    """The error for fields that are no ``kind``."""
    return InvalidInputError(sentence_of(error, kind, whole=whole), violations=faults_of(error, kind, whole=whole))


def faults_of(
    error: ValidationError, kind: type[BaseModel] | None = None, *, whole: str = "body"
) -> Sequence[FieldViolation]:
    """Every fault; one without a field gets the field name ``whole``. Examples come from the fields of ``kind``."""
    found = error.errors(include_url=False)
    return [_fault(item, _written(item["loc"], kind) or whole, kind) for item in found]


def sentence_of(error: ValidationError, kind: type[BaseModel] | None = None, *, whole: str = "body") -> str:
    """The first few faults in one line."""
    faults = faults_of(error, kind, whole=whole)
    shown = [fault.message for fault in faults[:_SHOWN_FAULTS]]
    return "; ".join([*shown, "..."] if len(faults) > len(shown) else shown)


def _written(location: Sequence[int | str], kind: type[BaseModel] | None) -> str:
    """The path of a field as a caller writes it: words that may be one text with commas have no numbers."""
    is_word = bool(location) and _takes_words(kind, location[0])
    return ".".join(map(str, location[:1] if is_word else location))


def _fault(item: Mapping[str, Any], name: str, kind: type[BaseModel] | None) -> FieldViolation:
    if words := _REASONS.get(item["type"]):
        reason = words.format(**{name: _number(value) for name, value in item.get("ctx", {}).items()})
    else:
        text = item["msg"].removeprefix("Value error, ")
        reason = f"{text[:1].lower()}{text[1:]}"
    if item["type"] in _CHOICES and (meant := _meant(item)) is not None:
        return FieldViolation(field=name, reason=f"{reason}{_shown(item['input'])}: did you mean {meant!r}?")
    shown = "" if name.partition(".")[0] in _SECRET_FIELDS or item["type"] == "missing" else _shown(item["input"])
    example = _example(kind, item["loc"]) if kind is not None and item["type"] not in _NO_EXAMPLE else ""
    return FieldViolation(field=name, reason=f"{reason}{shown}{example}")


def _meant(item: Mapping[str, Any]) -> str | None:
    """The choice that a wrong value resembles."""
    value = item["input"]
    return nearest(value, re.findall("'([^']*)'", item["ctx"]["expected"])) if isinstance(value, str) else None


def _number(value: object) -> object:
    """A bound without an exponent: 4611686018427387904, not 4.6e+18."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: object) -> str:
    text = repr(value)
    return f", not {text}" if isinstance(value, str | int | float) and len(text) <= _SHOWN_CHARACTERS else ""


def _example(kind: type[BaseModel], location: Sequence[int | str]) -> str:
    """An example of the field at ``location``."""
    model: type[BaseModel] | None = kind
    found: FieldDoc | None = None
    for name in location:
        if isinstance(name, int):
            continue  # an item of the list before it
        known = _field(model, name) if model is not None else None
        if model is None or known is None:
            return ""
        found, model = doc_of(model.__name__, known), _model_in(model.model_fields[known].annotation)
    if found is None or found.example is None:
        return ""
    words = location and _takes_words(kind, location[0])
    return f", for example {json.dumps(','.join(found.example) if words else found.example)}"


def _takes_words(kind: type[BaseModel] | None, name: int | str) -> bool:
    """Whether a field is a list of words, which may also be one text with commas."""
    field = kind.model_fields.get(str(name)) if kind is not None else None
    return field is not None and SEPARATED in field.metadata


def _field(model: type[BaseModel], name: str) -> str | None:
    """The field that has this name, or this other name."""
    for known, field in model.model_fields.items():
        alias = field.validation_alias
        if name == known or (isinstance(alias, AliasChoices) and name in alias.choices):
            return known
    return None


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The message that a field holds, if it holds one."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((item for item in options if isinstance(item, type) and issubclass(item, BaseModel)), None)
