"""Performs a request with an idempotency key once: repetitions get the reply of the first request.

begin in the store -> run -> keep the reply          repetition: the kept reply, or 409 for a different request
       |               +--> drop it if it failed     at the same time: waits for the first
       +-- the server dies --> the next repetition resumes the request; its row is kept even if it fails,
                               because the command may have run
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from debug_server.errors import ConflictError, DebugServerError, InvalidInputError
from debug_server.messages import Operation, Reply, Request
from debug_server.model import Command, RequestKey
from debug_server.service.caller import Caller
from debug_server.store import MetadataStore

MAX_KEY = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAttempt:
    """One attempt of a request with a key."""

    key: str  # prefixed with the caller
    since: datetime | None  # when the first attempt began, in a process that has died; None for the first attempt


class KeyedReplies:
    """Performs keyed requests once; ``is_alive`` says whether the process with an owner name is alive."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        call: Callable[..., Awaitable[Any]],
        owner: Callable[[], str],
        is_alive: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._call = call
        self._owner = owner
        self._is_alive = is_alive
        self._under_way: dict[tuple[str, str], asyncio.Task[Reply]] = {}

    def key_of(
        self, caller: Caller, operation: Operation, request: Request, key: str, reply: Callable[[Command], str]
    ) -> RequestKey:
        """The key for the commit that adds the command of a request, with the reply for repetitions."""
        check_key(key)
        return RequestKey(
            caller=_caller_key(caller),
            key=key,
            fingerprint=_fingerprint(operation, request),
            owner=self._owner(),
            reply=reply,
        )

    async def once(
        self,
        caller: Caller,
        operation: Operation,
        request: Request,
        key: str,
        run: Callable[[RequestAttempt], Awaitable[Reply]],
    ) -> Reply:
        """The reply of ``run``, or of the earlier request with this key."""
        check_key(key)
        request_key = (_caller_key(caller), key)
        fingerprint = _fingerprint(operation, request)
        # When the first request has ended, _begin returns its stored reply.
        while (other := self._under_way.get(request_key)) is not None:
            await asyncio.wait({other})
        # Shielded: a request must be completed even if its caller disconnects.
        task = asyncio.get_running_loop().create_task(self._once(request_key, operation, fingerprint, run))
        self._under_way[request_key] = task
        task.add_done_callback(lambda done: self._forget_task(request_key, done))
        return await asyncio.shield(task)

    def _forget_task(self, request_key: tuple[str, str], task: asyncio.Task[Reply]) -> None:
        self._under_way.pop(request_key, None)
        if not task.cancelled():
            task.exception()  # retrieved, because the caller may have disconnected

    async def _once(
        self,
        request_key: tuple[str, str],
        operation: Operation,
        fingerprint: str,
        run: Callable[[RequestAttempt], Awaitable[Reply]],
    ) -> Reply:
        found = await self._call(self._begin, request_key, fingerprint)
        if isinstance(found, str):
            return operation.reply.model_validate_json(found)
        try:
            reply = await run(RequestAttempt(key=":".join(request_key), since=found))
        except DebugServerError:
            if found is None:  # else an earlier attempt may have run the command: keep the row for the next one
                await self._call(self._store.requests.drop, *request_key, owner=self._owner())
            raise
        text = reply.model_dump_json()
        await self._call(self._store.requests.answer, *request_key, owner=self._owner(), reply=text)
        return reply

    def _begin(self, request_key: tuple[str, str], fingerprint: str) -> str | datetime | None:
        """The stored reply; or the time at which a dead process began the request; or None for a new request."""
        owner = self._owner()
        row = self._store.requests.begin(*request_key, fingerprint=fingerprint, owner=owner)
        if row.fingerprint != fingerprint:
            raise ConflictError(
                f"the idempotency key {request_key[1]!r} was used for another request: choose a new key"
            )
        if row.first:
            return None
        if row.reply is not None:
            return row.reply
        alive = row.owner != owner and self._is_alive(row.owner)
        if alive or not self._store.requests.take_over(*request_key, owner=row.owner, new_owner=owner):
            raise ConflictError(f"the request with the idempotency key {request_key[1]!r} is in progress: retry later")
        return row.created_at


def check_key(key: str) -> None:
    """InvalidInputError unless the key is printable ASCII."""
    if not 0 < len(key) <= MAX_KEY or not key.isascii() or not key.isprintable():
        raise InvalidInputError(f"the idempotency key {key[:64]!r} must be 1 to {MAX_KEY} printable ASCII characters")


def _caller_key(caller: Caller) -> str:
    return "local" if caller.token_id is None else f"token-{caller.token_id}"


def _fingerprint(operation: Operation, request: Request) -> str:
    text = f"{operation.name}\n{request.model_dump_json(exclude_defaults=True)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
