"""Defers signals whose handlers raise, where an exception at the wrong moment would lose a command."""

from __future__ import annotations

import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Held:
    """The deferred handlers, and the signals that arrived meanwhile."""

    def __init__(self, handlers: dict[int, Callable[[int, FrameType | None], Any]]) -> None:
        self.handlers = handlers
        self.pending: list[int] = []
        self.inside = False  # an interruptible part
        self.open = False
        self.over = False
        self.tell = sys.unraisablehook

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """Python calls it between any two instructions of the main thread."""
        if not (self.open or self.over):
            self.pending.append(number)
            return
        self.open = False  # it may raise, and the code that catches it must not be interrupted again
        self.handlers[number](number, frame)
        self.open = True

    def dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Called by Python for an exception that nothing could catch: the part stays interruptible."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.open = self.inside
        self.tell(unraisable)

    def deliver(self) -> None:
        """Call the handlers of the signals that arrived meanwhile."""
        while self.pending:
            number = self.pending.pop(0)
            self.handlers[number](number, None)


_held: _Held | None = None  # of the main thread: Python runs handlers only there


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer handlers until the end of the block, except in ``interruptible`` parts; not called if one has raised."""
    global _held
    if _held is not None or not _in_main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    holder = _Held({number: handler for number, handler in found.items() if callable(handler)})
    try:
        for number in holder.handlers:
            signal.signal(number, holder.arrived)
        _held, sys.unraisablehook = holder, holder.dropped
        yield
    except KeyboardInterrupt:
        holder.pending.clear()
        raise
    finally:
        _held, holder.over = None, True  # first: a handler that raises now must not prevent restoring the others
        sys.unraisablehook = holder.tell
        for number, handler in holder.handlers.items():
            signal.signal(number, handler)
        holder.deliver()


@contextmanager
def interruptible() -> Iterator[None]:
    """A part of a deferred block that may be interrupted; the code that catches the exception undoes it."""
    holder = _held
    if holder is None or not _in_main_thread():
        yield
        return
    try:
        holder.open = holder.inside = True
        holder.deliver()
        yield
    finally:
        holder.open = holder.inside = False


def await_readable(connection: socket.socket, timeout: float | None) -> None:
    """In a deferred block, wait interruptibly before a read: an interrupt during the read would lose data."""
    if _held is None or not _in_main_thread():
        return
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    with interruptible():
        if not poll.poll(None if timeout is None else timeout * 1000):
            raise TimeoutError("timed out")


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
