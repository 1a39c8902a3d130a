"""Quotas of tokens: open sessions, unfinished commands, requests per second; and what a token may have without any."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from debug_server.errors import InvalidInputError, QuotaExceededError
from debug_server.service.caller import Caller
from debug_server.store import MetadataStore

SESSIONS, COMMANDS, REQUESTS = "sessions", "commands", "requests_per_second"
WORKSPACES = "workspaces"  # those of open sessions; bounded for tokens that have no quota of sessions
QUOTAS = (SESSIONS, COMMANDS, REQUESTS)
_RETRY_SECONDS = 1.0

Count = Callable[[Callable[[int], int], int], Awaitable[int]]


def check_quotas(quotas: Mapping[str, Any]) -> dict[str, float]:
    """The quotas of a new token."""
    for name, value in quotas.items():
        if name not in QUOTAS:
            raise InvalidInputError(f"unknown quota {name!r}: use some of {', '.join(QUOTAS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
            raise InvalidInputError(f"quota {name}={value!r} must be a number above zero; leave it out for no limit")
    return dict(quotas)


class Quotas:
    """Enforces the quotas; sessions and commands that are being added count too."""

    def __init__(
        self,
        store: MetadataStore,
        count: Count,
        clock: Callable[[], float] = time.monotonic,
        *,
        workspaces: int | None = None,
    ) -> None:
        self._workspaces = workspaces  # limit for a token that is not an admin's
        self._count = count
        self._clock = clock
        self._in_use = {SESSIONS: store.sessions.count_open, COMMANDS: store.commands.count_unfinished}
        self._in_use[WORKSPACES] = store.sessions.count_with_workspace
        self._reserved: Counter[tuple[int, str]] = Counter()
        self._buckets: dict[int, tuple[float, float]] = {}

    def take_request(self, caller: Caller) -> None:
        """QuotaExceededError if the caller exceeds its rate; bursts of one second's requests are allowed."""
        rate = caller.quotas.get(REQUESTS)
        if rate is None or caller.token_id is None:
            return
        now = self._clock()
        tokens, before = self._buckets.get(caller.token_id, (max(1.0, rate), now))
        tokens = min(max(1.0, rate), tokens + (now - before) * rate)
        if tokens < 1.0:
            self._buckets[caller.token_id] = (tokens, now)
            raise QuotaExceededError(
                f"token {caller.name!r} may send {rate:g} requests per second: slow down",
                retry_after=(1.0 - tokens) / rate,
            )
        self._buckets[caller.token_id] = (tokens - 1.0, now)

    @asynccontextmanager
    async def reserve(self, caller: Caller, **wanted: int) -> AsyncIterator[None]:
        """Reserve quota for sessions, commands and workspaces during the block; QuotaExceededError if it is short."""
        limited = [(name, count) for name, count in wanted.items() if self._limit(caller, name) is not None]
        if not limited or caller.token_id is None:
            yield
            return
        held: Counter[tuple[int, str]] = Counter()
        try:
            for name, count in limited:
                self._reserved[caller.token_id, name] += count
                held[caller.token_id, name] += count
                await self._check(caller, caller.token_id, name)
            yield
        finally:
            self._reserved.subtract(held)

    async def _check(self, caller: Caller, token_id: int, name: str) -> None:
        limit = self._limit(caller, name)
        used = await self._count(self._in_use[name], token_id)
        if limit is not None and used + self._reserved[token_id, name] > limit:
            raise QuotaExceededError(
                f"token {caller.name!r} may have {limit:g} {name} at a time and has {used}: wait until one is finished",
                retry_after=_RETRY_SECONDS,
            )

    def _limit(self, caller: Caller, name: str) -> float | None:
        if name == WORKSPACES:
            return None if caller.is_admin or SESSIONS in caller.quotas else self._workspaces
        return caller.quotas.get(name)
