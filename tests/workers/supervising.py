"""A server's workers without a server: a bench, a loop, the workers of one test."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from debug_server.telemetry import PrometheusTelemetry
from debug_server.workers.interface import Conversation, WorkerChannel
from debug_server.workers.spec import Readiness, StdoutReadiness, WorkerSpec, WorkerTiming
from debug_server.workers.workers import Workers
from tests.running import Bench

PROGRAM = Path(__file__).parent / "programs" / "worker.py"
READY_LINE = StdoutReadiness(line="serving requests")


def argv(*words: object) -> list[str]:
    """The command line of the test's worker."""
    return [sys.executable, "-I", "-S", str(PROGRAM), *map(str, words)]


def timing(**changed: Any) -> WorkerTiming:
    """Impatient, so that tests are quick; but one that a busy machine lets wait is not one that fails."""
    quick = {"backoff_initial": 0.01, "backoff_maximum": 0.05, "shutdown_grace": 1.0, "startup_timeout": 60.0}
    return WorkerTiming(**{**quick, **changed})


def spec(
    bench: Bench, *words: object, readiness: Readiness = READY_LINE, name: str = "echo", **more: Any
) -> WorkerSpec:
    """A worker of the test's program."""
    fixed = {"timing": timing(), "cwd": bench.workspace, **more}
    return WorkerSpec(name=name, argv=argv(*(words or ("stdout",))), readiness=readiness, **fixed)


class Supervised(Workers):
    """With the metrics at hand."""

    telemetry: PrometheusTelemetry

    def metric(self, name: str, worker: str = "echo", instance: int = 0) -> float:
        """The value of one."""
        mark = f'{name}{{instance="{instance}",worker="{worker}"}} '
        lines = [line for line in self.telemetry.render().splitlines() if line.startswith(mark)]
        return float(lines[0].removeprefix(mark)) if lines else 0.0


@asynccontextmanager
async def supervised(bench: Bench, *specs: WorkerSpec, **more: Any) -> AsyncGenerator[Supervised, None]:
    """Workers that run for the block."""
    telemetry = PrometheusTelemetry()
    workers = Supervised(runner=bench.supervisor, store=bench.store, specs=specs, telemetry=telemetry, **more)
    workers.telemetry = telemetry
    async with workers.running():
        yield workers


async def until(found: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """The first true value of ``found()``, looked at often; fails after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (value := found()):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or found}")
        await asyncio.sleep(0.002)
    return value


class Echo:
    """A conversation with the test's program, line by line."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._rest = b""
        self._turn = asyncio.Lock()
        self.closed = 0

    @property
    def details(self) -> dict[str, str]:
        return {"greeting": "hello"}

    async def ask(self, line: bytes) -> bytes:
        """The answer to one line; empty when the worker is gone."""
        await self._channel.send(line + b"\n")
        while b"\n" not in self._rest:
            piece = await self._channel.receive()
            if not piece:
                return b""
            self._rest += piece
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer

    async def ask_in_turn(self, line: bytes) -> bytes:
        """For several users of one conversation."""
        async with self._turn:
            return await self.ask(line)

    async def ping(self) -> None:
        await self.ask(b"ping")

    async def close(self) -> None:
        self.closed += 1


async def shake_hands(channel: WorkerChannel) -> Conversation:
    """Says hello and expects it back."""
    echo = Echo(channel)
    assert await echo.ask(b"hello") == b"hello"
    return echo
