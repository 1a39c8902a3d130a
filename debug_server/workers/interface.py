"""What a user of supervised workers sees of them: channel, conversation, generation, worker.

    supervisor --starts--> generation --channel--> handshake --returns--> conversation --borrowed by--> requests

A worker is the thing that is declared and always there; a generation is one run of its process.
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
    error: str | None  # a sentence, when there is more to say than a status
    reason: str  # of the exit record: exited, signaled, out_of_memory, …
    killed: bool = False  # it, or something that it had started, ended by KILL only
    survivors: bool = False  # something that it had started is not dead even so

    def to_json(self) -> dict[str, Any]:
        """As the status object shows it."""
        at = self.at.isoformat(timespec="milliseconds")
        return {"at": at, "code": self.code, "signal": self.signal, "error": self.error, "reason": self.reason}


class WorkerChannel(Protocol):
    """The stdin and stdout of one generation, in bytes, in order, with back-pressure both ways."""

    async def send(self, data: bytes) -> None:
        """Write to the worker's stdin; waits while too much is under way. WorkerExitedError when it is gone."""

    async def receive(self) -> bytes:
        """The next piece of stdout (not a line); empty when there is no more. One reader.

        What is not received is not acknowledged: the worker blocks once a megabyte waits.
        """


class Conversation(Protocol):
    """What a handshake makes of a channel; it reads the channel from then on."""

    @property
    def details(self) -> Mapping[str, Any]:
        """For people, in the status object: versions, user agent. No secrets."""

    async def ping(self) -> None:
        """Return if the worker answers, raise if it does not; one that cannot tell returns at once."""

    async def close(self) -> None:
        """The generation has ended or is about to: answer whoever waits, end tasks. Called exactly once."""


Handshake = Callable[[WorkerChannel], Awaitable[Conversation]]
"""Makes a conversation on a fresh channel; raises (with a sentence) when that cannot be. Cancelled at the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One run of a worker that became ready."""

    number: int  # 1, 2, 3 for one worker
    pid: int
    channel: WorkerChannel
    conversation: Conversation | None  # None unless its readiness is a handshake
    ended: asyncio.Future[WorkerExit]  # done once the process tree is empty
    failing: asyncio.Event  # set at the first sign of its end, before ``ended``


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChange:
    """What subscribers are told."""

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
        """Whether a process is there, or will be without anybody's help."""

    @property
    def in_flight(self) -> int:
        """How many borrow it now."""

    def status(self) -> dict[str, Any]:
        """The status object: plain values, safe to encode, no secrets."""

    async def wait_for_ready(self, timeout: float) -> bool:  # noqa: ASYNC109 - False is an answer, not an error
        """True as soon as it is ready; False at the deadline, or when it will never be without an operator."""

    def borrow(self) -> AbstractContextManager[Generation]:
        """The ready generation for one request, which a drain waits for; WorkerNotReadyError when there is none."""

    def subscribe(self, listener: Callable[[WorkerChange], None]) -> Callable[[], None]:
        """Have ``listener`` called in the loop at each spawn, ready and exit; returns its removal."""
