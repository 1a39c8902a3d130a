"""Methods made from calls: a client's verb has the parameters of the call and returns its reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Generic, ParamSpec, Protocol, TypeVar

from debug_server.client.calls import Call

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Sender(Protocol):
    """A client that waits."""

    def send(self, call: Call[R]) -> R:
        """Do one operation."""


class AsyncSender(Protocol):
    """A client that is awaited."""

    async def send(self, call: Call[R]) -> R:
        """Do one operation."""


class Verb(Generic[P, T]):
    """An operation as a method."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, client: Sender, owner: type) -> Callable[P, T]:
        @wraps(self.build)
        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.send(self.build(*args, **kwargs))

        return method


class AsyncVerb(Generic[P, T]):
    """The same, awaited."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Awaitable[T]]:
        @wraps(self.build)
        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await client.send(self.build(*args, **kwargs))

        return method
