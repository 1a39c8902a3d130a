"""From what was received to a reply."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from debug_server.errors import DebugServerError

T = TypeVar("T")


def decode(reply: type[T], data: Any) -> T:
    """A reply from what was received; DebugServerError when it is something else."""
    if isinstance(data, reply):
        return data
    assert issubclass(reply, BaseModel), reply
    try:
        return reply.model_validate(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the answer"
        raise DebugServerError(f"the answer is no {reply.__name__}: {where}: {fault['msg']}") from error
