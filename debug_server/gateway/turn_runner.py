"""Runs the turns of one request: takes a slot, borrows a worker, watches deadlines, and passes on events in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import WorkerNotReadyError
from debug_server.gateway.admission import Admission, AdmittedRequest
from debug_server.gateway.api_errors import ApiError
from debug_server.ports import Telemetry
from debug_server.workers import (
    CodexConversation,
    Ended,
    Generation,
    SupervisedWorker,
    ToolCall,
    Turn,
    TurnEvent,
    TurnRequest,
)

Pick = Callable[[], SupervisedWorker]
Replace = Callable[[SupervisedWorker], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """No event yet: time for a keepalive comment in the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEvent:
    """An event of one choice."""

    choice: int
    event: TurnEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a request may take, in seconds."""

    end: float  # on the clock of the event loop
    total: float
    idle: float
    keepalive: float | None  # None: no comments

    @classmethod
    def of(cls, config: GatewayConfig, *, stream: bool) -> Deadlines:
        """The deadlines of a request that starts now."""
        answers = config.answers
        total = answers.timeout_ms / 1000
        return cls(
            end=asyncio.get_running_loop().time() + total,
            total=total,
            idle=(answers.stream_idle_ms if stream else answers.idle_ms) / 1000,
            keepalive=answers.keepalive_ms / 1000 if stream else None,
        )


class TurnRunner:
    """Answers requests with the events of a ready worker."""

    def __init__(self, pick: Pick, admission: Admission, telemetry: Telemetry, replace: Replace | None = None) -> None:
        """``replace`` is called with a worker that does not stop a turn after its client left."""
        self._pick = pick
        self._admission = admission
        self._telemetry = telemetry
        self._replace = replace

    def check_ready(self) -> None:
        """WorkerNotReadyError while no worker is ready; called before a request is read or queued."""
        worker = self._pick()
        if not worker.is_ready:
            raise WorkerNotReadyError("the worker is not ready: try again", status=worker.status())

    async def models(self) -> list[str]:
        """The models of the ready worker; empty while there is none."""
        worker = self._pick()
        if not worker.is_ready:
            return []
        with worker.borrow() as generation:
            assert isinstance(generation.conversation, CodexConversation)
            return list(await generation.conversation.models())

    async def events(
        self, request: TurnRequest, admitted: AdmittedRequest, *, choices: int, deadlines: Deadlines
    ) -> AsyncGenerator[ChoiceEvent | Keepalive, None]:
        """The events of all choices, one choice after the other; closing the generator interrupts the current turn.

        ApiError or an error of the worker ends it early.
        """
        async with self._admission.turn(deadlines.end):
            worker = self._pick()
            with worker.borrow() as generation:
                admitted.leave_queue()
                for choice in range(choices):
                    async with aclosing(self._turn(worker, generation, request, deadlines)) as events:
                        async for event in events:
                            yield Keepalive() if event is None else ChoiceEvent(choice=choice, event=event)

    async def _turn(
        self, worker: SupervisedWorker, generation: Generation, request: TurnRequest, deadlines: Deadlines
    ) -> AsyncGenerator[TurnEvent | None, None]:
        assert isinstance(generation.conversation, CodexConversation)
        calls = ToolCallCounter(self._telemetry)
        turn: Turn | None = None
        try:
            async with generation.conversation.turn(request) as turn:
                event: TurnEvent | None = None
                idle = IdleTimer(deadlines.idle)
                while not isinstance(event, Ended):
                    event = await _next(turn, deadlines, idle)
                    calls.note(event)
                    yield event
                    if event is not None:
                        idle.reset()  # the time that the client takes to read does not count
        finally:
            calls.close()
            if turn is not None and turn.is_stuck and self._replace is not None:
                self._replace(worker)


class ToolCallCounter:
    """Counts the function calls of a turn: started, then flushed at its end or aborted."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._open = False

    def note(self, event: TurnEvent | None) -> None:
        """Count an event."""
        if isinstance(event, ToolCall) and not self._open:
            self._open = True
            self._count("codex_tool_buffer_started_total", "call")
        elif isinstance(event, Ended) and self._open:
            self._open = False
            self._count("codex_tool_buffer_flushed_total", "end")
            self._telemetry.gauge("codex_tool_buffer_anomaly", 0)

    def close(self) -> None:
        """The turn is over."""
        if self._open:
            self._count("codex_tool_buffer_aborted_total", "lost")
            self._telemetry.gauge("codex_tool_buffer_anomaly", 1)

    def _count(self, name: str, reason: str) -> None:
        self._telemetry.count(name, 1, output_mode="openai-json", reason=reason)


class IdleTimer:
    """When the worker has been idle for too long; keepalive comments do not reset it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        """Start again: the worker sent something."""
        self.until = asyncio.get_running_loop().time() + self._seconds


async def _next(turn: Turn, deadlines: Deadlines, idle: IdleTimer) -> TurnEvent | None:
    """The next event, or None when a keepalive is due; ApiError at one of the deadlines."""
    clock = asyncio.get_running_loop().time
    keepalive_at = clock() + deadlines.keepalive if deadlines.keepalive is not None else float("inf")
    while True:
        until = min(deadlines.end, idle.until, keepalive_at)
        try:
            async with asyncio.timeout_at(until):
                event = await turn.read()
        except TimeoutError:
            if until == deadlines.end:
                raise ApiError("request_timeout", f"no complete answer within {deadlines.total:g} s") from None
            if until == idle.until:
                raise ApiError("idle_timeout", f"the worker sent nothing for {deadlines.idle:g} s") from None
            return None
        idle.reset()
        if event is not None:
            return event
