"""An idempotency key that is stored in the commit that does what its request asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from debug_server.model.command import Command


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """The key of a request that adds one command."""

    caller: str
    key: str
    fingerprint: str  # of the operation and its arguments
    owner: str  # the process that answers it
    reply: Callable[[Command], str]  # what a repetition is answered with
