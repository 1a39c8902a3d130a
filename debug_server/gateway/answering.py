"""Runs the turns of one request: a slot, a borrowed worker, deadlines, and events in the order in which they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import WorkerNotReadyError
from debug_server.gateway.admission import Admission, Place
from debug_server.gateway.refusals import Refusal
from debug_server.ports import Telemetry
from debug_server.workers.codex import CodexConversation
from debug_server.workers.codex_turn import Turn, TurnRequest
from debug_server.workers.interface import Generation, SupervisedWorker
from debug_server.workers.turn_events import Ended, ToolCall, TurnEvent

Pick = Callable[[], SupervisedWorker]
Replace = Callable[[SupervisedWorker], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """Nothing to say, but alive: time for a comment in the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """An event of one of the choices."""

    choice: int
    event: TurnEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a request may take, in seconds and on the loop's clock."""

    deadline: float
    total: float
    idle: float
    pulse: float | None  # None: no comments

    @classmethod
    def of(cls, config: GatewayConfig, *, stream: bool) -> Patience:
        """From now on."""
        answers = config.answers
        total = answers.timeout_ms / 1000
        return cls(
            deadline=asyncio.get_running_loop().time() + total,
            total=total,
            idle=(answers.stream_idle_ms if stream else answers.idle_ms) / 1000,
            pulse=answers.keepalive_ms / 1000 if stream else None,
        )


class Answering:
    """Turns requests into events, over whichever worker is ready."""

    def __init__(self, pick: Pick, admission: Admission, telemetry: Telemetry, replace: Replace | None = None) -> None:
        """``replace`` is told of a worker that does not stop a turn whose client has left."""
        self._pick = pick
        self._admission = admission
        self._telemetry = telemetry
        self._replace = replace

    def check_ready(self) -> None:
        """Refuse early, before a request is read or waits in line."""
        worker = self._pick()
        if not worker.is_ready:
            raise WorkerNotReadyError("the worker takes no requests now: try again", status=worker.status())

    async def models(self) -> list[str]:
        """What the ready worker knows; empty while there is none."""
        worker = self._pick()
        if not worker.is_ready:
            return []
        with worker.borrow() as generation:
            assert isinstance(generation.conversation, CodexConversation)
            return list(await generation.conversation.models())

    async def events(
        self, request: TurnRequest, place: Place, *, choices: int, patience: Patience
    ) -> AsyncGenerator[Heard | Pulse, None]:
        """Everything that is said, one choice after the other; leaving it interrupts the turn under way.

        A Refusal or an error of the worker's ends it early.
        """
        async with self._admission.turn(patience.deadline):
            worker = self._pick()
            with worker.borrow() as generation:
                place.begun()
                for choice in range(choices):
                    async with aclosing(self._turn(worker, generation, request, patience)) as heard:
                        async for event in heard:
                            yield Pulse() if event is None else Heard(choice=choice, event=event)

    async def _turn(
        self, worker: SupervisedWorker, generation: Generation, request: TurnRequest, patience: Patience
    ) -> AsyncGenerator[TurnEvent | None, None]:
        assert isinstance(generation.conversation, CodexConversation)
        calls = CallBuffer(self._telemetry)
        turn: Turn | None = None
        try:
            async with generation.conversation.turn(request) as turn:
                event: TurnEvent | None = None
                silence = Silence(patience.idle)
                while not isinstance(event, Ended):
                    event = await _next(turn, patience, silence)
                    calls.take(event)
                    yield event
                    if event is not None:
                        silence.broken()  # how long a client takes to read is not the worker's silence
        finally:
            calls.close()
            if turn is not None and turn.is_stuck and self._replace is not None:
                self._replace(worker)


class CallBuffer:
    """Counts the functions that a turn calls: taken, handed over with its end, or lost with it."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._open = False

    def take(self, event: TurnEvent | None) -> None:
        """Note an event."""
        if isinstance(event, ToolCall) and not self._open:
            self._open = True
            self._count("codex_tool_buffer_started_total", "call")
        elif isinstance(event, Ended) and self._open:
            self._open = False
            self._count("codex_tool_buffer_flushed_total", "end")
            self._telemetry.gauge("codex_tool_buffer_anomaly", 0)

    def close(self) -> None:
        """The turn is over, whichever way."""
        if self._open:
            self._count("codex_tool_buffer_aborted_total", "lost")
            self._telemetry.gauge("codex_tool_buffer_anomaly", 1)

    def _count(self, name: str, reason: str) -> None:
        self._telemetry.count(name, 1, output_mode="openai-json", reason=reason)


class Silence:
    """Since when nothing came from the worker; the comments that we send meanwhile do not end it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.broken()

    def broken(self) -> None:
        """Something came."""
        self.until = asyncio.get_running_loop().time() + self._seconds


async def _next(turn: Turn, patience: Patience, silence: Silence) -> TurnEvent | None:
    """The next event, or None when it is time for a sign of life; Refusal at one of the deadlines."""
    clock = asyncio.get_running_loop().time
    pulse_at = clock() + patience.pulse if patience.pulse is not None else float("inf")
    while True:
        until = min(patience.deadline, silence.until, pulse_at)
        try:
            async with asyncio.timeout_at(until):
                event = await turn.read()
        except TimeoutError:
            if until == patience.deadline:
                raise Refusal("request_timeout", f"no whole answer within {patience.total:g} s") from None
            if until == silence.until:
                raise Refusal("idle_timeout", f"no sign of life for {patience.idle:g} s") from None
            return None
        silence.broken()
        if event is not None:
            return event
