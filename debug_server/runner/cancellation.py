"""Cancellation of a command before it has started: its preparation ends, and the program never starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from debug_server.errors import CommandExecutionError


class StartCancelledError(CommandExecutionError):
    """A command was cancelled before it had started."""


class Cancellation:
    """Whether the start of one command was cancelled; any thread may request it, the preparing thread checks it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._message: str | None = None
        self._listeners: list[Callable[[], object]] = []

    @property
    def message(self) -> str | None:
        """The reason, or None while it is not cancelled."""
        return self._message

    def request(self, message: str) -> None:
        """Cancel; the first message is kept."""
        with self._lock:
            if self._message is None:
                self._message = message
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def check(self) -> None:
        """StartCancelledError after a request."""
        if self._message is not None:
            raise StartCancelledError(self._message)

    @contextmanager
    def on_request(self, wake: Callable[[], object]) -> Iterator[None]:
        """Call ``wake`` on a request while the block runs; at once if it was already requested."""
        with self._lock:
            self._listeners.append(wake)
        try:
            if self._message is not None:
                wake()
            yield
        finally:
            with self._lock:
                self._listeners.remove(wake)
