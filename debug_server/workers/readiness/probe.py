"""The base class of readiness probes."""

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
    """A worker is not ready, or no longer answers; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What a probe may use."""

    runner: WorkerSupervisor
    spec: WorkerSpec
    instance: int
    folder: Path  # private to this instance; kept between runs
    handshakes: Mapping[str, Handshake]
    adopted: bool = False  # the worker was started by an earlier supervisor


class Probe:
    """A probe of one run; the base class reads stdout and ignores it."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._signal = asyncio.Event()  # set when the worker says that it is ready
        self.conversation: Conversation | None = None
        self.failure: str | None = None  # of the newest check while it was not ready

    @property
    def env(self) -> Mapping[str, str]:
        """Variables for the worker."""
        return {}

    @property
    def wrapper(self) -> Sequence[str]:
        """A program to run the worker under."""
        return ()

    def open(self) -> None:
        """Start listening; called before the worker is started."""

    async def listen(self, channel: WorkerChannel) -> None:
        """Read the worker's stdout to its end."""
        while piece := await channel.receive():
            self.feed(piece)

    def feed(self, piece: bytes) -> None:
        """A piece of stdout."""

    async def ready(self, channel: WorkerChannel) -> Mapping[str, Any]:
        """Wait until it is ready; returns details. ProbeFailedError if it never will be."""
        await self._signal.wait()
        return {}

    async def check(self) -> None:
        """ProbeFailedError if it no longer answers; does nothing for kinds that cannot check."""

    def mark_ready(self) -> None:
        """Mark it as ready: it was ready under its previous supervisor."""
        self._signal.set()

    def close(self) -> None:
        """Stop listening."""
