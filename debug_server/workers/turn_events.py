"""The events of a turn of a codex worker, queued for a reader of any speed."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

MAX_WAITING_TEXT = 8 << 20  # characters that may wait for a slow reader


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens of one turn, or of several together."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Prompt and completion."""
        return self.prompt + self.completion

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            prompt=self.prompt + other.prompt,
            cached=self.cached + other.cached,
            completion=self.completion + other.completion,
            reasoning=self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The model calls a function of the client."""

    call_id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The last event of a turn that ended; a failed turn raises instead."""

    status: Literal["completed", "interrupted"]
    usage: TokenUsage


TurnEvent = Text | ToolCall | Ended


@dataclass(slots=True)
class TurnEventQueue:
    """The queue of one turn: waiting text is joined and limited; the first failure is the last event."""

    most: int = MAX_WAITING_TEXT
    _events: deque[TurnEvent] = field(default_factory=deque)
    _texts: list[str] = field(default_factory=list)  # the newest event, while it is text
    _held: int = 0
    _failure: BaseException | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: TurnEvent) -> bool:
        """Add an event; False when too much text waits for the reader."""
        if isinstance(event, Text):
            if self._held + len(event.text) > self.most:
                return False
            self._texts.append(event.text)
            self._held += len(event.text)
        else:
            self._join()
            self._events.append(event)
        self._wake.set()
        return True

    def fail(self, error: BaseException) -> None:
        """Raise ``error`` in the reader after the earlier events; only the first counts."""
        if self._failure is None:
            self._failure = error
        self._wake.set()

    def touch(self) -> None:
        """Note activity without an event."""
        self._wake.set()

    def _join(self) -> None:
        if self._texts:
            self._events.append(Text(text="".join(self._texts)))
            self._texts.clear()

    async def get(self) -> TurnEvent | None:
        """The next event; None for activity without one. Raises the error of ``fail``."""
        if not self._events and not self._texts and self._failure is None:
            self._wake.clear()
            await self._wake.wait()
        self._join()
        if self._events:
            event = self._events.popleft()
            if isinstance(event, Text):
                self._held -= len(event.text)
            return event
        if self._failure is not None:
            raise self._failure
        return None
