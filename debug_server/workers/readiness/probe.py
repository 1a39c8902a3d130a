"""The port of all readiness kinds, and what most of them share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.runner.worker import WorkerSupervisor
from debug_server.workers.interface import Conversation, Handshake, WorkerChannel
from debug_server.workers.spec import WorkerSpec


class ProbeFailedError(Exception):
    """A worker is not ready, or does not answer any more; the sentence says how that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What a probe may use."""

    runner: WorkerSupervisor
    spec: WorkerSpec
    instance: int
    folder: Path  # of this instance alone; lasts as long as its declaration
    handshakes: Mapping[str, Handshake]
    adopted: bool = False  # the worker was started by an earlier supervisor


class Probe:
    """Of one run; the base reads stdout away and finds nothing in it."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._signal = asyncio.Event()  # given by whatever the worker does to say that it is ready
        self.conversation: Conversation | None = None

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that tell the worker how to say it."""
        return {}

    @property
    def wrapper(self) -> Sequence[str]:
        """A program to run the worker under."""
        return ()

    def open(self) -> None:
        """Begin to listen; before the worker is started."""

    async def listen(self, channel: WorkerChannel) -> None:
        """Read the worker's stdout to its end."""
        while piece := await channel.receive():
            self.feed(piece)

    def feed(self, piece: bytes) -> None:
        """A piece of stdout."""

    async def ready(self, channel: WorkerChannel) -> Mapping[str, Any]:
        """Return once it is ready, with what there is to say of it; ProbeFailedError when it never will be."""
        await self._signal.wait()
        return {}

    async def check(self) -> None:
        """Return if it still answers; ProbeFailedError if not. Kinds that cannot ask are content."""

    def was_ready(self) -> None:
        """It had said so to the process that supervised it before."""
        self._signal.set()

    def close(self) -> None:
        """Stop listening."""
