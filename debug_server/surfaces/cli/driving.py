"""Asynchronous streams, read one item at a time by code that is not asynchronous, and closed whatever interrupts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def drive(runner: asyncio.Runner, stream: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of a stream, until it ends or nobody wants more."""
    reader = _Reader(stream)
    try:
        while True:
            try:
                item = runner.run(reader.next())
            except StopAsyncIteration:
                return
            yield item
    finally:
        runner.run(reader.close())


class _Reader(Generic[T]):
    """Knows which task reads: an interrupt before ``Runner.run`` has its handler leaves one that was never waited for,
    and a stream that is read cannot be closed."""

    def __init__(self, stream: AsyncGenerator[T, None]) -> None:
        self._stream = stream
        self._reading: asyncio.Task[T] | None = None

    async def next(self) -> T:
        """The next item; StopAsyncIteration at the end."""
        self._reading = asyncio.current_task()
        try:
            return await anext(self._stream)
        finally:
            self._reading = None

    async def close(self) -> None:
        """End what still reads, then the stream."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._stream.aclose()
