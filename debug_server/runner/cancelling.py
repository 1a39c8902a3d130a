"""A cancel that comes before the command has started: it ends what is prepared for it, and the program never starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from debug_server.errors import CommandExecutionError


class StartCancelledError(CommandExecutionError):
    """Somebody asked for the end of a command that had not started."""


class Cancellation:
    """Whether the start of one command was cancelled; set from any thread, heard by the one that prepares."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._message: str | None = None
        self._listeners: list[Callable[[], object]] = []

    @property
    def message(self) -> str | None:
        """Why, or None as long as nobody has asked."""
        return self._message

    def request(self, message: str) -> None:
        """Cancel; the first message stands."""
        with self._lock:
            if self._message is None:
                self._message = message
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def check(self) -> None:
        """StartCancelledError once somebody has asked."""
        if self._message is not None:
            raise StartCancelledError(self._message)

    @contextmanager
    def listening(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have ``wake`` called by a request, at once if it has come already."""
        with self._lock:
            self._listeners.append(wake)
        try:
            if self._message is not None:
                wake()
            yield
        finally:
            with self._lock:
                self._listeners.remove(wake)
