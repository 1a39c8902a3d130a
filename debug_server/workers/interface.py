"""The interface of supervised workers for their users: channel, conversation, generation, worker.

    supervisor --starts--> generation --channel--> handshake --returns--> conversation --borrowed by--> requests

A worker is declared and kept alive; a generation is one run of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """How one generation ended."""

    at: datetime
    code: int | None  # only when the program itself ended with a status
    signal: int | None
    error: str | None  # a message, if there is more than a status
    reason: str  # of the exit record: exited, signaled, out_of_memory, …
    killed: bool = False  # it, or a process that it started, ended only by KILL
    survivors: bool = False  # a process that it started survived KILL

    def to_json(self) -> dict[str, Any]:
        """The fields of the status object."""
        at = self.at.isoformat(timespec="milliseconds")
        return {"at": at, "code": self.code, "signal": self.signal, "error": self.error, "reason": self.reason}


class WorkerChannel(Protocol):
    """The stdin and stdout of one generation, in bytes, in order, with back-pressure both ways."""

    async def send(self, data: bytes) -> None:
        """Write to the worker's stdin; waits while too much is unanswered. WorkerExitedError when it is gone."""

    async def receive(self) -> bytes:
        """The next piece of stdout (not a line); empty when there is no more. One reader.

        Unreceived output is not acknowledged: the worker blocks when a megabyte waits.
        """


class Conversation(Protocol):
    """The result of a handshake; it reads the channel from then on."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Details for the status object: versions, user agent. No secrets."""

    async def ping(self) -> None:
        """Return if the worker answers, raise if it does not; return at once if that cannot be checked."""

    async def close(self) -> None:
        """The generation ends: fail waiting calls, end tasks. Called exactly once."""


Handshake = Callable[[WorkerChannel], Awaitable[Conversation]]
"""Opens a conversation on a new channel; raises (with a message) if that fails. Cancelled at the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One run of a worker that became ready."""

    number: int  # 1, 2, 3 for one worker
    pid: int
    channel: WorkerChannel
    conversation: Conversation | None  # None unless its readiness is a handshake
    ended: asyncio.Future[WorkerExit]  # done once the process tree is empty
    ending: asyncio.Event  # set at the first sign of its end, before ``ended``


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChange:
    """The argument of subscribers."""

    kind: Literal["spawn", "ready", "exit"]
    worker: str
    instance: int
    generation: int
    exit: WorkerExit | None = None


class SupervisedWorker(Protocol):
    """One instance of a declared worker, whatever generation it is in."""

    @property
    def name(self) -> str:
        """As declared."""

    @property
    def instance(self) -> int:
        """0, 1, 2 among those of one name."""

    @property
    def is_ready(self) -> bool:
        """Whether requests may go to it now."""

    @property
    def is_running(self) -> bool:
        """Whether a process exists, or will be started without an operator."""

    @property
    def in_flight(self) -> int:
        """The number of requests that use it now."""

    def status(self) -> dict[str, Any]:
        """The status object: plain values, safe to encode, no secrets."""

    async def wait_for_ready(self, timeout: float) -> bool:  # noqa: ASYNC109 - False is an answer, not an error
        """True as soon as it is ready; False at the deadline, or if it needs an operator."""

    def borrow(self) -> AbstractContextManager[Generation]:
        """The ready generation for one request, which a drain waits for; WorkerNotReadyError when there is none."""

    def subscribe(self, listener: Callable[[WorkerChange], None]) -> Callable[[], None]:
        """Call ``listener`` in the loop at each spawn, ready and exit; returns a function that removes it."""
