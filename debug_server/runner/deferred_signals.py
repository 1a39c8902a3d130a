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
        self.in_interruptible_part = False
        self.handlers_may_run = False
        self.ended = False
        self.previous_hook = sys.unraisablehook

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Our handler for the deferred signals; Python may call it between any two instructions of the main thread."""
        if not (self.handlers_may_run or self.ended):
            self.pending.append(number)
            return
        self.handlers_may_run = False  # it may raise, and the code that catches it must not be interrupted again
        self.handlers[number](number, frame)
        self.handlers_may_run = True

    def handle_unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Our ``sys.unraisablehook``: after an interrupt that no code could catch, the part stays interruptible."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            self.handlers_may_run = self.in_interruptible_part
        self.previous_hook(unraisable)

    def deliver(self) -> None:
        """Call the handlers of the signals that arrived meanwhile."""
        while self.pending:
            number = self.pending.pop(0)
            self.handlers[number](number, None)


_held: _Held | None = None  # of the main thread: Python runs handlers only there


@contextmanager
def defer_signals() -> Iterator[None]:
    """Run signal handlers only at the end of the block and in its ``interruptible`` parts.

    If one raises KeyboardInterrupt, the signals that are still pending are dropped.
    """
    global _held
    if _held is not None or not _in_main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    holder = _Held({number: handler for number, handler in found.items() if callable(handler)})
    try:
        for number in holder.handlers:
            signal.signal(number, holder.handle_signal)
        _held, sys.unraisablehook = holder, holder.handle_unraisable
        yield
    except KeyboardInterrupt:
        holder.pending.clear()
        raise
    finally:
        _held, holder.ended = None, True  # first: a handler that raises now must not prevent restoring the others
        sys.unraisablehook = holder.previous_hook
        for number, handler in holder.handlers.items():
            signal.signal(number, handler)
        holder.deliver()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let handlers run, and raise, in this part of a deferred block; whoever catches the exception undoes the part."""
    holder = _held
    if holder is None or not _in_main_thread():
        yield
        return
    try:
        holder.handlers_may_run = holder.in_interruptible_part = True
        holder.deliver()
        yield
    finally:
        holder.handlers_may_run = holder.in_interruptible_part = False


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
