"""The audit record of each request: its caller, method, path, outcome and duration.

The service adds the caller as soon as the token is recognised, so that a request that is refused afterwards (by a rate
limit, for example) is recorded under the token's name.

Anybody can send requests, so records without a caller are short and few: the others are counted.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from debug_server.service.caller import ANONYMOUS, Caller

_LOG = logging.getLogger("debug_server.api")
_LONGEST_PATH = 100  # of a request without a caller, as the log writes it
_PER_SECOND = 10  # records without a caller


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
        if _LOG.isEnabledFor(logging.INFO) and (self._has_caller or _anonymous.take(self.status)):
            fields = {
                "method": self.method,
                "path": self.path if self._has_caller else short(self.path),
                "status": self.status,
                "duration_ms": round((time.perf_counter() - self.started) * 1000, 3),
                "token_id": self.caller.token_id if self.caller else None,
                "token_name": self.caller.name if self.caller else None,
                "request_id": self.request_id,
            }
            _LOG.info("api.request", extra=fields)

    @property
    def _has_caller(self) -> bool:
        return self.caller is not None and self.caller is not ANONYMOUS


class AnonymousRecords:
    """How many records without a caller are written in a second; the rest become one record of their counts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = clock()
        self._written = 0
        self._left_out: Counter[str] = Counter()  # by status

    def take(self, status: int | str) -> bool:
        """Count one record; returns whether to write it."""
        self.summarise()
        self._written += 1
        if self._written <= _PER_SECOND:
            return True
        self._left_out[str(status)] += 1
        return False

    def summarise(self) -> None:
        """Write how many were left out, once a second has passed."""
        if self._clock() - self._second < 1.0:
            return
        if self._left_out:
            fields = {"count": self._left_out.total(), "statuses": dict(self._left_out)}
            _LOG.info("api.requests_not_recorded", extra=fields)
        self._second, self._written = self._clock(), 0
        self._left_out.clear()


def short(path: str) -> str:
    """A path without control characters and of bounded length, in the log's own encoding."""
    escaped = json.dumps(path[: _LONGEST_PATH + 1])[1:-1]
    return path if len(escaped) <= _LONGEST_PATH else f"{escaped[:_LONGEST_PATH]}..."


_anonymous = AnonymousRecords()
summarise = _anonymous.summarise

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
