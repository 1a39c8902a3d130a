"""Decodes replies."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from debug_server.errors import DebugServerError
from debug_server.messages.faults import sentence_of

T = TypeVar("T")


def decode(reply: type[T], data: Any) -> T:
    """Decode a reply; DebugServerError if it does not match."""
    if isinstance(data, reply):
        return data
    assert issubclass(reply, BaseModel), reply
    try:
        return reply.model_validate(data)
    except ValidationError as error:
        raise DebugServerError(f"the server's answer is not a {reply.__name__}: {sentence_of(error)}") from error
