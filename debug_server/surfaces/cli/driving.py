"""Iterates asynchronous generators from blocking code, and always closes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def drive(runner: asyncio.Runner, stream: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items of a stream; the stream is closed when the iteration ends."""
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
    """Remembers the task that reads the stream, so that it can be cancelled before the stream is closed.

    A KeyboardInterrupt before ``Runner.run`` has installed its handler leaves such a task behind, and a stream that
    is being read cannot be closed.
    """

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
        """Cancel a pending read, then close the stream."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._stream.aclose()
