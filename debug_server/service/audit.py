"""The request that is being served, as the audit log will tell of it: its id, and who sent it once that is known.

The service notes the caller the moment a token is recognised, so that a request which is refused afterwards (its token
asks too often, for example) is recorded under the token's name all the same.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from debug_server.service.caller import Caller


@dataclass(slots=True, kw_only=True)
class Notes:
    """What is learnt about one request on its way."""

    request_id: str | None = None
    caller: Caller | None = None


_SERVED: ContextVar[Notes | None] = ContextVar("debug_server_request", default=None)


def begin(notes: Notes) -> None:
    """From here on this task serves the request that ``notes`` are of."""
    _SERVED.set(notes)


def note_caller(caller: Caller) -> None:
    """Who sent the request that this task serves."""
    notes = _SERVED.get()
    if notes is not None:
        notes.caller = caller


def request_id() -> str | None:
    """The id of the request that this task serves, where it has one."""
    notes = _SERVED.get()
    return None if notes is None else notes.request_id
