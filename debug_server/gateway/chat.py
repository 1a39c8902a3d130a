"""Chat answers: a whole completion, or the chunks of a stream (role, content, finish, usage, [DONE])."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from debug_server.gateway.answering import Heard, Pulse
from debug_server.gateway.chat_request import ChatRequest
from debug_server.gateway.refusals import Refusal
from debug_server.workers.turn_events import Ended, Text, TokenUsage, ToolCall, TurnEvent

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n\n"
Events = AsyncGenerator[Heard | Pulse, None]


def usage_json(usage: TokenUsage) -> dict[str, Any]:
    """As the chat API counts."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


@dataclass(slots=True)
class Choice:
    """What was said for one choice."""

    legacy: bool  # the client declared functions, not tools
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    usage: TokenUsage = field(default_factory=TokenUsage)

    def take(self, event: TurnEvent) -> None:
        """Add an event; Refusal where the worker stopped half-way."""
        if isinstance(event, Text):
            self.texts.append(event.text)
        elif isinstance(event, ToolCall):
            self.calls.append(event)
        else:
            self.usage = event.usage
            if event.status == "interrupted":
                raise Refusal("worker_error", "the worker interrupted the turn before it had answered")

    @property
    def finish(self) -> str:
        """Why it ended."""
        if not self.calls:
            return "stop"
        return "function_call" if self.legacy else "tool_calls"

    def message(self) -> dict[str, Any]:
        """The whole of it."""
        text = "".join(self.texts)
        told: dict[str, Any] = {"role": "assistant", "content": text if text or not self.calls else None}
        if self.calls and self.legacy:
            told["function_call"] = {"name": self.calls[0].name, "arguments": self.calls[0].arguments}
        elif self.calls:
            told["tool_calls"] = [_call(call) for call in self.calls]
        return told


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


class ChatAnswer:
    """The answer to one request, in either form."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._choices = [Choice(legacy=bool(request.functions) and not request.tools) for _ in range(request.n)]

    @property
    def usage(self) -> TokenUsage:
        """Of all choices."""
        return sum((choice.usage for choice in self._choices), TokenUsage())

    async def whole(self, events: Events) -> dict[str, Any]:
        """The completion."""
        async with aclosing(events):
            async for item in events:
                if isinstance(item, Heard):
                    self._choices[item.choice].take(item.event)
        choices = [
            {"index": index, "message": choice.message(), "finish_reason": choice.finish, "logprobs": None}
            for index, choice in enumerate(self._choices)
        ]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage_json(self.usage)}

    async def stream(self, events: Events) -> AsyncGenerator[bytes, None]:
        """The chunks, as server-sent events."""
        spoken: set[int] = set()
        async with aclosing(events):
            async for item in events:
                if isinstance(item, Pulse):
                    yield KEEPALIVE
                    continue
                if item.choice not in spoken:
                    spoken.add(item.choice)
                    yield self._chunk(item.choice, {"role": "assistant", "content": ""})
                choice = self._choices[item.choice]
                choice.take(item.event)
                for data in self._pieces(item.choice, choice, item.event):
                    yield data
        if self._request.stream_options and self._request.stream_options.include_usage:
            yield _event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage_json(self.usage)})
        yield DONE

    def _pieces(self, index: int, choice: Choice, event: TurnEvent) -> Iterator[bytes]:
        if isinstance(event, Text):
            yield self._chunk(index, {"content": event.text})
        elif isinstance(event, ToolCall) and choice.legacy:
            if len(choice.calls) == 1:  # the old form knows one
                yield self._chunk(index, {"function_call": {"name": event.name, "arguments": event.arguments}})
        elif isinstance(event, ToolCall):
            yield self._chunk(index, {"tool_calls": [{"index": len(choice.calls) - 1, **_call(event)}]})
        elif isinstance(event, Ended):
            yield self._chunk(index, {}, choice.finish)

    def _chunk(self, index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return _event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._request.model}

    def failure(self, refusal: Refusal) -> bytes:
        """The one last event of a stream that broke: no [DONE] after it."""
        return _event(refusal.to_json())


def _event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"
