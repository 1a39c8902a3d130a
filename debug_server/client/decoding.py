"""From what was received to a reply."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from debug_server.errors import DebugServerError
from debug_server.messages.faults import sentence_of

T = TypeVar("T")


def decode(reply: type[T], data: Any) -> T:
    """A reply from what was received; DebugServerError when it is something else."""
    if isinstance(data, reply):
        return data
    assert issubclass(reply, BaseModel), reply
    try:
        return reply.model_validate(data)
    except ValidationError as error:
        raise DebugServerError(f"the answer is no {reply.__name__}: {sentence_of(error)}") from error
