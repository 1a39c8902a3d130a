"""Admits requests: limits on all of them, on turns, on streams and on rates; and the drain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import WorkerNotReadyError
from debug_server.gateway.api_errors import ApiError

QUEUE_FACTOR = 8  # how many requests may wait for each slot
_MAX_CALLERS = 10_000  # whose rate is counted


class AdmittedRequest:
    """One admitted request; a drain refuses it until it has a worker."""

    def __init__(self, waiting: set[asyncio.Timeout], scope: asyncio.Timeout) -> None:
        self._waiting = waiting
        self._scope = scope
        waiting.add(scope)

    def leave_queue(self) -> None:
        """A worker has the request: from now on only the worker's own drain ends it."""
        self._waiting.discard(self._scope)


class Admission:
    """Counts requests, from their first byte to the end of their turn."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        streams_changed: Callable[[int], None] = lambda count: None,
        worker_status: Callable[[], Mapping[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = asyncio.Semaphore(config.codex.max_concurrency)
        self._max_inside = config.codex.max_concurrency * (1 + QUEUE_FACTOR)
        self._max_streams = config.answers.max_streams
        self._rate = config.access.rate_max if config.access.rate_limit else None
        self._window = config.access.rate_window_ms / 1000
        self._clock = clock
        self._streams_changed = streams_changed
        self._worker_status = worker_status
        self._waiting: set[asyncio.Timeout] = set()
        self._callers: dict[str, tuple[float, int]] = {}  # name -> start of the window, requests in it
        self.inside = 0
        self.running = 0
        self.streams = 0

    def check_rate(self, caller: str) -> None:
        """Count a request of a caller; ApiError if it exceeds the rate limit."""
        if self._rate is None:
            return
        now = self._clock()
        since, count = self._callers.get(caller, (now, 0))
        if now - since >= self._window:
            since, count = now, 0
        if count >= self._rate:
            raise ApiError(
                "rate_limited",
                f"more than {self._rate} requests in {self._window:g} s: try again later",
                retry_after=since + self._window - now,
            )
        if len(self._callers) >= _MAX_CALLERS:
            self._callers.clear()
        self._callers[caller] = (since, count + 1)

    @asynccontextmanager
    async def admit(self) -> AsyncGenerator[AdmittedRequest]:
        """Admit a request for the block, before its body is read."""
        if self.inside >= self._max_inside:
            raise ApiError("worker_busy", f"{self.inside} requests are running or waiting: try again later")
        self.inside += 1
        scope = asyncio.timeout(None)
        try:
            async with scope:
                admitted = AdmittedRequest(self._waiting, scope)
                try:
                    yield admitted
                finally:
                    admitted.leave_queue()
        except TimeoutError:
            if not scope.expired():
                raise
            reason = "the server is shutting down: try again in a moment"
            raise WorkerNotReadyError(reason, status=self._worker_status()) from None
        finally:
            self.inside -= 1

    def drain(self) -> None:
        """Refuse requests that wait for a slot or are still sending their body."""
        now = asyncio.get_running_loop().time()
        for scope in self._waiting:
            scope.reschedule(now)

    @contextmanager
    def streaming(self) -> Generator[None]:
        """Count a stream for the block."""
        if self.streams >= self._max_streams:
            raise ApiError("concurrency_exceeded", f"too many streams (limit {self._max_streams}): try again later")
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
        """Take a slot for the block; wait for it until ``deadline`` on the loop's clock."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError as error:
            raise ApiError("request_timeout", "no slot became free in time: try again later") from error
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._slots.release()
