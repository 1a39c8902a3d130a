"""Counts the followers of logs and events and limits them: each uses a connection and so a file descriptor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime

from debug_server.errors import AccessError, DebugServerError, TooManyFollowersError
from debug_server.runner.open_files import max_connections
from debug_server.service.caller import Caller

TOKEN_INVALID = "the token has expired or was revoked"
_MAX_FOLLOWERS = 10_000
_RETRY_SECONDS = 5.0
_CHECK_SECONDS = 5.0  # between checks for tokens that another process, such as a command line, has revoked

Revoked = Callable[[Collection[int]], Awaitable[Collection[int]]]  # the revoked ones among the given tokens


class Followers:
    """The followers in this process, over every surface."""

    def __init__(self, limit: int | None = None, *, revoked: Revoked | None = None) -> None:
        self.limit = max_followers() if limit is None else limit
        self._followers: dict[object, tuple[int | None, Callable[[], object]]] = {}
        self._waiting: dict[object, tuple[int | None, Callable[[], object]]] = {}  # for a single reply; not counted
        self._revoked = revoked
        self._checker: asyncio.Task[None] | None = None  # runs while there are callers of either kind

    @property
    def size(self) -> int:
        """The number of followers."""
        return len(self._followers)

    def check_room(self) -> None:
        """TooManyFollowersError if the limit is reached."""
        if self.size >= self.limit:
            raise TooManyFollowersError(
                f"too many followers (limit {self.limit}): retry later, or read the log by offset",
                retry_after=_RETRY_SECONDS,
            )

    @contextmanager
    def registered(
        self, caller: Caller | None, on_token_invalid: Callable[[], object], *, follows: bool = True
    ) -> Iterator[None]:
        """Count a follower during the block, and call ``on_token_invalid`` if its token expires or is revoked.

        The limit is not checked here: call ``check_room`` first. Without ``follows`` the token is watched only.
        """
        entry, expiry = object(), None
        members = self._followers if follows else self._waiting
        members[entry] = (caller.token_id if caller else None, on_token_invalid)
        if caller is not None and caller.expires_at is not None:
            left = (caller.expires_at - datetime.now(UTC)).total_seconds()
            expiry = asyncio.get_running_loop().call_later(max(0.0, left), on_token_invalid)
        if self._revoked is not None and (self._checker is None or self._checker.done()):
            self._checker = asyncio.get_running_loop().create_task(self._check_tokens(self._revoked))
        try:
            yield
        finally:
            del members[entry]
            if expiry is not None:
                expiry.cancel()

    @asynccontextmanager
    async def while_valid(self, caller: Caller, *, follows: bool = False) -> AsyncIterator[None]:
        """End the block with AccessError if the caller's token expires or is revoked; ``follows`` counts a follower."""
        token_invalid = False

        def on_token_invalid() -> None:
            nonlocal token_invalid
            token_invalid = True
            bound.reschedule(asyncio.get_running_loop().time())

        try:
            async with asyncio.timeout(None) as bound:
                with self.registered(caller, on_token_invalid, follows=follows):
                    yield
        except TimeoutError as error:
            if not token_invalid:
                raise
            raise AccessError(TOKEN_INVALID) from error

    async def _check_tokens(self, revoked: Revoked) -> None:
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            if not self._followers and not self._waiting:
                return  # here, and not when the last one leaves: starting it for each request would cost 0.05 ms
            tokens = {token_id for token_id, _ in self._all() if token_id is not None}
            with suppress(DebugServerError):  # the store is unavailable; the next check retries
                for token_id in await revoked(tokens):
                    self.disconnect(token_id)

    def _all(self) -> list[tuple[int | None, Callable[[], object]]]:
        return [*self._followers.values(), *self._waiting.values()]

    def disconnect(self, token_id: int) -> None:
        """Disconnect the followers that use a revoked token; call it in the event loop."""
        for found, on_token_invalid in self._all():
            if found == token_id:
                on_token_invalid()


def max_followers(connections: int | None = None) -> int:
    """The limit for so many connections, or those of this process: a quarter is reserved for short requests."""
    return max(1, min(_MAX_FOLLOWERS, (connections or max_connections()) * 3 // 4))
