"""Requests of unidentified callers: one begins at a time, in turns of users, so that they crowd out nobody.

Such a caller is a connection whose latest request came from no known caller, unless it belongs to the server's own
user or its request has a token that was recognised before. That gives a request precedence and no right: who may do
what is decided later, as ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Container, Hashable, Iterable

from debug_server.service.caller import bearer_token
from debug_server.sockets import Connection, canonical, user_at_once

PER_SECOND = 250.0
_UNIX = "unix"  # only the server's own user can open that socket

Begin = Callable[[], bool]  # False: it needed no turn, because its client has left


class UnidentifiedCallers:
    """Decides whose requests wait for a turn; used in one event loop."""

    def __init__(self, *, per_second: float = PER_SECOND, recent_tokens: Container[str] = ()) -> None:
        self.turns = Turns(per_second)
        self._recent_tokens = recent_tokens
        self._passing = (_UNIX, os.geteuid())

    def include(self, user: Hashable, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request of this user with these headers must wait."""
        if user in self._passing:
            return False
        given = next((value for name, value in headers if name == b"authorization"), b"").decode("latin-1")
        secret = bearer_token(given)
        return secret is None or secret not in self._recent_tokens


class Turns:
    """Calls the waiting functions one at a time, in turns between users; used in one event loop."""

    def __init__(self, per_second: float = PER_SECOND) -> None:
        self._pause = 1.0 / per_second
        self._waiting: dict[Hashable, dict[Begin, None]] = {}  # the first user is the next
        self._timer: asyncio.Handle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, user: Hashable, begin: Begin) -> None:
        """Call ``begin`` in this user's turn: at once if nobody had one in the last moment."""
        self._waiting.setdefault(user, {})[begin] = None
        if self._timer is None:
            self._next()

    def leave(self, user: Hashable, begin: Begin) -> None:
        """Remove ``begin``, so that it is not called."""
        if begins := self._waiting.get(user):
            begins.pop(begin, None)
            if not begins:
                del self._waiting[user]

    def _next(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        user = next(iter(self._waiting))
        begins = self._waiting.pop(user)
        begin = next(iter(begins))
        del begins[begin]
        if begins:
            self._waiting[user] = begins  # behind the other users
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._next)
        if not begin():
            self._timer.cancel()
            self._timer = loop.call_soon(self._next)


def caller_of(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> Hashable:
    """Who has the other end: a uid of this machine where the kernel says so at once, else the caller's address."""
    if client is None or server is None or server[1] is None:
        return _UNIX
    try:
        host, server_host = canonical(client[0]), canonical(server[0])
    except ValueError:
        return client[0]
    if not host.is_loopback:
        return client[0]
    found = user_at_once(Connection(host=host, port=client[1], peer_host=server_host, peer_port=server[1]))
    return client[0] if found is None else found
