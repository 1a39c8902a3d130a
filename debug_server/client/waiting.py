"""Waits until something has ended: repeats a request that the server holds for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from debug_server.client.calls import Call
from debug_server.client.exchange import Pause, delay_before
from debug_server.client.following import RECONNECT_SECONDS
from debug_server.errors import UnavailableError

_REQUEST_SECONDS = 30.0  # for one request: proxies cut longer ones
_EARLY_PAUSE = 0.25  # a server that shuts down answers at once


class Endable(Protocol):
    """The reply to a wait."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""


E = TypeVar("E", bound=Endable)


class Waiting(Generic[E]):
    """One wait, independent of the client that sends its requests."""

    def __init__(self, build: Callable[[float], Call[E]], seconds: float | None) -> None:
        """``build`` makes the request that waits for some seconds; without ``seconds`` the wait has no limit."""
        self._build = build
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._first: float | None = seconds  # as given, so that the server refuses a wrong value
        self._answered = time.monotonic()
        self._failures = 0

    def call(self) -> Call[E]:
        """The next request."""
        left, self._first = self._first or self._left(), None
        return self._build(min(left, _REQUEST_SECONDS))

    def pause_after(self, reply: E) -> Pause | None:
        """None if the wait is over, else the pause before the next request."""
        self._answered, self._failures = time.monotonic(), 0
        return None if reply.ended or self._is_over() else Pause(seconds=min(_EARLY_PAUSE, self._left()))

    def pause_without_answer(self, error: UnavailableError) -> Pause:
        """The pause after a failure; raises it when the server stays away, or the time is over."""
        if self._is_over() or time.monotonic() - self._answered > RECONNECT_SECONDS:
            raise error
        self._failures += 1
        return Pause(seconds=min(delay_before(self._failures - 1, server_delay=error.retry_after), self._left()))

    def _left(self) -> float:
        return _REQUEST_SECONDS if self._deadline is None else max(0.01, self._deadline - time.monotonic())

    def _is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline
