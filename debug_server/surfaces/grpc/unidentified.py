"""Limits of gRPC callers that are not identified, neither by a token nor as the server's own user.

The library reads a message of up to 20 MiB before its handler is called. Therefore every method of ours takes a stream
of requests, which is the same on the wire, and reads the message itself once it knows the caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from grpc.aio import ServicerContext

from debug_server.errors import InvalidInputError, QuotaExceededError

Requests = AsyncIterator[bytes]
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnidentifiedLimits:
    """Limits for all unidentified callers together; only ``streams_each`` is per connection."""

    reads: int = 4  # messages that are being read: each holds up to 20 MiB
    waiting: int = 64  # calls that wait for one of these places
    read_seconds: float = 5.0  # for a message, the wait included
    streams: int = 64
    streams_each: int = 4  # of one connection
    stream_seconds: float = 60.0


class UnidentifiedCallers:
    """Counts the reads and streams of unidentified callers; used in one event loop."""

    def __init__(self, limits: UnidentifiedLimits | None = None) -> None:
        self.limits = limits or UnidentifiedLimits()
        self._reads = asyncio.Semaphore(self.limits.reads)
        self._waiting = 0
        self._streams: Counter[str] = Counter()

    async def read(self, requests: Requests) -> bytes | None:
        """The next message, None at the end; QuotaExceededError when there is no room or no time."""
        if self._waiting >= self.limits.waiting:
            raise _too_many_calls()
        self._waiting += 1
        try:
            async with asyncio.timeout(self.limits.read_seconds), self._reads:
                return await anext(requests, None)
        except TimeoutError as error:
            text = f"no complete message within {self.limits.read_seconds:g} s: retry, or send a token"
            raise QuotaExceededError(text, retry_after=_RETRY_SECONDS) from error
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def stream(self, context: ServicerContext) -> AsyncIterator[None]:
        """Hold a stream open for the block; QuotaExceededError when its time is over."""
        peer, limits = context.peer(), self.limits
        if self._streams.total() >= limits.streams or self._streams[peer] >= limits.streams_each:
            raise _too_many_calls()
        self._streams[peer] += 1
        try:
            async with asyncio.timeout(limits.stream_seconds):
                yield
        except TimeoutError as error:
            text = f"a stream without a token ends after {limits.stream_seconds:g} s: retry, or send a token"
            raise QuotaExceededError(text, retry_after=_RETRY_SECONDS) from error
        finally:
            self._streams[peer] -= 1
            self._streams += Counter()  # removes peers with a count of 0


def _too_many_calls() -> QuotaExceededError:
    return QuotaExceededError("too many calls without a token: retry later, or send one", retry_after=_RETRY_SECONDS)


async def read_one(requests: Requests) -> bytes:
    """The one message of a call by a known caller."""
    return require_message(await anext(requests, None))


def require_message(data: bytes | None) -> bytes:
    """InvalidInputError for a call that ended without its message."""
    if data is None:
        raise InvalidInputError("the call ended without a message: send one")
    return data
