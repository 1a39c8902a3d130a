"""Which requests are taken: a limit for all of them, slots for turns, limits for streams and rates, and a drain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import WorkerNotReadyError
from debug_server.gateway.refusals import Refusal

QUEUE_FACTOR = 8  # requests that may wait, for each slot
_MOST_CALLERS = 10_000  # whose rate is remembered


class Place:
    """One request that was taken; a drain refuses it as long as it has no worker."""

    def __init__(self, waiting: set[asyncio.Timeout], scope: asyncio.Timeout) -> None:
        self._waiting = waiting
        self._scope = scope
        waiting.add(scope)

    def begun(self) -> None:
        """A worker has it: how it ends is up to that worker's own drain."""
        self._waiting.discard(self._scope)


class Admission:
    """Counts requests from their first byte to the end of their turn."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        streams_changed: Callable[[int], None] = lambda count: None,
        worker_status: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = asyncio.Semaphore(config.codex.max_concurrency)
        self._most = config.codex.max_concurrency * (1 + QUEUE_FACTOR)
        self._most_streams = config.answers.max_streams
        self._rate = config.access.rate_max if config.access.rate_limit else None
        self._window = config.access.rate_window_ms / 1000
        self._clock = clock
        self._streams_changed = streams_changed
        self._worker_status = worker_status
        self._waiting: set[asyncio.Timeout] = set()
        self._callers: dict[str, tuple[float, int]] = {}  # -> start of the window, requests in it
        self.inside = 0
        self.running = 0
        self.streams = 0

    def check_rate(self, caller: str) -> None:
        """Count a request of a caller; refuse one too many in the window."""
        if self._rate is None:
            return
        now = self._clock()
        since, count = self._callers.get(caller, (now, 0))
        if now - since >= self._window:
            since, count = now, 0
        if count >= self._rate:
            raise Refusal(
                "rate_limited",
                f"more than {self._rate} requests in {self._window:g} s: wait and try again",
                retry_after=since + self._window - now,
            )
        if len(self._callers) >= _MOST_CALLERS:
            self._callers.clear()
        self._callers[caller] = (since, count + 1)

    @asynccontextmanager
    async def arrived(self) -> AsyncGenerator[Place]:
        """A request for the block, before anything of it is read."""
        if self.inside >= self._most:
            raise Refusal("worker_busy", f"{self.inside} requests are under way or wait: try again later")
        self.inside += 1
        scope = asyncio.timeout(None)
        try:
            async with scope:
                place = Place(self._waiting, scope)
                try:
                    yield place
                finally:
                    place.begun()
        except TimeoutError:
            if not scope.expired():
                raise
            told = "the server is shutting down: try again in a moment"
            raise WorkerNotReadyError(told, status=self._worker_status()) from None
        finally:
            self.inside -= 1

    def drain(self) -> None:
        """Refuse those that wait in line, or whose body is still on its way."""
        now = asyncio.get_running_loop().time()
        for scope in self._waiting:
            scope.reschedule(now)

    @contextmanager
    def streaming(self) -> Generator[None]:
        """A stream for the block."""
        if self.streams >= self._most_streams:
            raise Refusal(
                "concurrency_exceeded", f"{self.streams} streams are open, which is the bound: try again later"
            )
        self._count_stream(1)
        try:
            yield
        finally:
            self._count_stream(-1)

    def _count_stream(self, change: int) -> None:
        self.streams += change
        self._streams_changed(self.streams)

    @asynccontextmanager
    async def turn(self, deadline: float) -> AsyncGenerator[None]:
        """A slot for the block, waited for in line until ``deadline`` of the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError as error:
            raise Refusal("request_timeout", "no turn became free in time: try again later") from error
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._slots.release()
