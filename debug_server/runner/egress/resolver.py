"""Names to addresses by the host's own resolver, in a few threads: ``getaddrinfo`` blocks."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from ipaddress import ip_address

from debug_server.runner.egress.loop import Loop, Task
from debug_server.runner.egress.names import Address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from debug_server.runner.egress.loop import Steps

Lookup = Callable[[str], list[Address]]


class UnresolvedError(Exception):
    """A name has no address now; ``str()`` says why."""


def lookup(name: str) -> list[Address]:
    """The addresses of a name, in the order in which the host prefers them."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnresolvedError(f"{name} has no address: {getattr(error, 'strerror', None) or error}") from error
    # The address of a scoped IPv6 entry has its scope after a percent sign.
    return list(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))


class _Question:
    __slots__ = ("addresses", "error", "name", "task")

    def __init__(self, name: str, task: Task) -> None:
        self.name, self.task = name, task
        self.addresses: list[Address] | None = None
        self.error = ""


class Resolver:
    """A bounded pool. A lookup that hangs holds one of its threads; the others answer."""

    def __init__(self, loop: Loop, lookup: Lookup, *, threads: int, waiting: int) -> None:
        self._loop, self._lookup = loop, lookup
        self._limit, self._waiting = threads, waiting
        self._questions: deque[_Question] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._ended = False

    def close(self) -> None:
        """End the threads, but those that wait for the host's resolver: they end after that."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def addresses(self, name: str, deadline: float) -> Steps[list[Address]]:
        """Resolve a name; UnresolvedError, or TimedOut at the deadline."""
        question = _Question(name, self._loop.current())
        with self._changed:
            if len(self._questions) >= self._waiting:
                raise UnresolvedError(f"{name}: too many names are being resolved")
            self._questions.append(question)
            if self._idle < len(self._questions) and self._threads < self._limit:
                self._start_thread()
            self._changed.notify()
        while question.addresses is None and not question.error:
            yield deadline
        if question.addresses is None:
            raise UnresolvedError(question.error)
        return question.addresses

    def _start_thread(self) -> None:
        # A daemon: the end of the process does not wait for a resolver that hangs.
        thread = threading.Thread(target=self._work, name="egress-resolver", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if self._threads == 0:
                self._questions.pop()
                raise UnresolvedError("no thread can be created to resolve names") from error
        else:
            self._threads += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._questions and not self._ended:
                    self._changed.wait()
                if self._ended:
                    return
                self._idle -= 1
                question = self._questions.popleft()
            try:
                question.addresses = self._lookup(question.name)
            except UnresolvedError as error:
                question.error = str(error)
            with self._changed:
                if self._ended:
                    return
                self._loop.wake_soon(question.task)
