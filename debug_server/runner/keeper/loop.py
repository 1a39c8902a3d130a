"""A keeper's event loop: descriptors and their handlers."""

from __future__ import annotations

import select
from collections.abc import Callable

Handler = Callable[[int, int], None]


class Loop:
    """One epoll; a handler gets (descriptor, events)."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}

    def watch(self, fd: int, handler: Handler, events: int = select.EPOLLIN) -> None:
        """Call ``handler`` when ``fd`` is ready."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Wait for other events on a watched descriptor."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor; call it before closing."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Whether ``fd`` is watched."""
        return fd in self._handlers

    def turn(self, seconds: float) -> None:
        """Wait up to ``seconds`` and handle what is ready."""
        for fd, events in self._epoll.poll(seconds):
            handler = self._handlers.get(fd)
            if handler is not None:  # an earlier handler of this turn may have removed it
                handler(fd, events)

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()
