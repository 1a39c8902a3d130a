"""Runs the turns of one request: a slot, a borrowed worker, deadlines, and events in the order in which they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import WorkerNotReadyError
from debug_server.gateway.admission import Admission
from debug_server.gateway.refusals import Refusal
from debug_server.workers.codex import CodexConversation
from debug_server.workers.codex_turn import Turn, TurnRequest
from debug_server.workers.interface import SupervisedWorker
from debug_server.workers.turns import Ended, TurnEvent

Pick = Callable[[], SupervisedWorker]


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

    def __init__(self, pick: Pick, admission: Admission) -> None:
        self._pick = pick
        self._admission = admission

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
        self, request: TurnRequest, *, choices: int, patience: Patience
    ) -> AsyncGenerator[Heard | Pulse, None]:
        """Everything that is said, one choice after the other; leaving it interrupts the turn under way.

        A Refusal or an error of the worker's ends it early.
        """
        async with self._admission.turn(patience.deadline):
            with self._pick().borrow() as generation:
                conversation = generation.conversation
                assert isinstance(conversation, CodexConversation)
                for choice in range(choices):
                    async with conversation.turn(request) as turn:
                        ended = False
                        while not ended:
                            event = await _next(turn, patience)
                            ended = isinstance(event, Ended)
                            yield Pulse() if event is None else Heard(choice=choice, event=event)


async def _next(turn: Turn, patience: Patience) -> TurnEvent | None:
    """The next event, or None when it is time for a sign of life; Refusal at one of the deadlines."""
    clock = asyncio.get_running_loop().time
    pulse_at = clock() + patience.pulse if patience.pulse is not None else float("inf")
    idle_at = clock() + patience.idle
    while True:
        until = min(patience.deadline, idle_at, pulse_at)
        try:
            async with asyncio.timeout_at(until):
                event = await turn.read()
        except TimeoutError:
            if until == patience.deadline:
                raise Refusal("request_timeout", f"no whole answer within {patience.total:g} s") from None
            if until == idle_at:
                raise Refusal("idle_timeout", f"no sign of life for {patience.idle:g} s") from None
            return None
        if event is not None:
            return event
        idle_at = clock() + patience.idle
