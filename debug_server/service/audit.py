"""The audit record of each request: its caller, method, path, outcome and duration.

The service adds the caller as soon as the token is recognised, so that a request that is refused afterwards (by a rate
limit, for example) is recorded under the token's name.
"""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from debug_server.service.caller import Caller

_LOG = logging.getLogger("debug_server.api")


@dataclass(slots=True, kw_only=True)
class Record:
    """The facts about one request, added while it is served."""

    method: str
    path: str
    status: int | str = 0
    request_id: str | None = None
    caller: Caller | None = None
    started: float = field(default_factory=time.perf_counter)

    def write(self) -> None:
        """Write the record to the log when the request ends."""
        if _LOG.isEnabledFor(logging.INFO):
            fields = {
                "method": self.method,
                "path": self.path,
                "status": self.status,
                "duration_ms": round((time.perf_counter() - self.started) * 1000, 3),
                "token_id": self.caller.token_id if self.caller else None,
                "token_name": self.caller.name if self.caller else None,
                "request_id": self.request_id,
            }
            _LOG.info("api.request", extra=fields)


_CURRENT: ContextVar[Record | None] = ContextVar("debug_server_request", default=None)


def begin(record: Record) -> None:
    """Make ``record`` the record of the request that this task serves."""
    _CURRENT.set(record)


def note_caller(caller: Caller) -> None:
    """Add the caller to the record of the request that this task serves."""
    record = _CURRENT.get()
    if record is not None:
        record.caller = caller


def request_id() -> str | None:
    """The id of the request that this task serves, if it has one."""
    record = _CURRENT.get()
    return None if record is None else record.request_id
