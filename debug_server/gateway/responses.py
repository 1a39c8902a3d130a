"""Answers of the Responses API: a whole response, or its numbered events."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

from debug_server.gateway.answering import Pulse
from debug_server.gateway.chat import KEEPALIVE, Events
from debug_server.gateway.refusals import Refusal
from debug_server.gateway.responses_request import ResponsesRequest
from debug_server.workers.turn_events import Text, TokenUsage, ToolCall, TurnEvent

_END = b"event: done\ndata: [DONE]\n\n"


def usage_json(usage: TokenUsage) -> dict[str, Any]:
    """As the Responses API counts."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


class ResponsesAnswer:
    """The answer to one request, in either form."""

    def __init__(self, request: ResponsesRequest, *, sent: Callable[[str], None] | None = None) -> None:
        """``sent`` hears the name of each event of a stream."""
        self._request = request
        self._sent = sent or (lambda event: None)
        self._id = f"resp_{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._output: list[dict[str, Any]] = []
        self._message: dict[str, Any] | None = None  # the item that text goes to
        self._texts: list[str] = []
        self._number = 0
        self.usage = TokenUsage()

    async def whole(self, events: Events) -> dict[str, Any]:
        """The response."""
        async for _ in self.stream(events):
            pass
        return self._response("completed")

    async def stream(self, events: Events) -> AsyncGenerator[bytes, None]:
        """Its events, numbered, as server-sent events."""
        begun = False
        async with aclosing(events):
            async for item in events:
                if isinstance(item, Pulse):
                    yield KEEPALIVE
                    continue
                if not begun:
                    begun = True
                    yield self._event("response.created", response=self._response("in_progress"))
                    yield self._event("response.in_progress", response=self._response("in_progress"))
                for data in self._take(item.event):
                    yield data
        yield self._event("response.completed", response=self._response("completed"))
        self._sent("done")
        yield _END

    def failure(self, refusal: Refusal) -> bytes:
        """The last events of a stream that broke."""
        told = refusal.to_json()["error"]
        response = {**self._response("failed"), "error": {"code": refusal.code, "message": str(refusal)}}
        failed = self._event("response.failed", response=response)
        return failed + self._event("error", **{**told, "param": refusal.param})

    def _take(self, event: TurnEvent) -> Iterator[bytes]:
        if isinstance(event, Text):
            if self._message is None:
                yield from self._open_message()
            self._texts.append(event.text)
            yield self._event("response.output_text.delta", **self._place(), delta=event.text, logprobs=[])
            return
        yield from self._close_message()
        if isinstance(event, ToolCall):
            yield from self._call(event)
        else:
            self.usage = event.usage
            if event.status == "interrupted":
                raise Refusal("worker_error", "the worker interrupted the turn before it had answered")

    def _place(self) -> dict[str, Any]:
        assert self._message is not None
        return {"item_id": self._message["id"], "output_index": len(self._output), "content_index": 0}

    def _open_message(self) -> Iterator[bytes]:
        self._message = {
            "type": "message",
            "id": f"msg_{secrets.token_hex(12)}",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        yield self._event("response.output_item.added", output_index=len(self._output), item=self._message)
        yield self._event("response.content_part.added", **self._place(), part=_part(""))

    def _close_message(self) -> Iterator[bytes]:
        if self._message is None:
            return
        text = "".join(self._texts)
        yield self._event("response.output_text.done", **self._place(), text=text, logprobs=[])
        yield self._event("response.content_part.done", **self._place(), part=_part(text))
        done = {**self._message, "status": "completed", "content": [_part(text)]}
        yield self._event("response.output_item.done", output_index=len(self._output), item=done)
        self._output.append(done)
        self._message = None
        self._texts.clear()

    def _call(self, call: ToolCall) -> Iterator[bytes]:
        at = {"item_id": f"fc_{secrets.token_hex(12)}", "output_index": len(self._output)}
        item = {"type": "function_call", "id": at["item_id"], "call_id": call.call_id, "name": call.name}
        opened = {**item, "arguments": "", "status": "in_progress"}
        done = {**item, "arguments": call.arguments, "status": "completed"}
        yield self._event("response.output_item.added", output_index=at["output_index"], item=opened)
        yield self._event("response.function_call_arguments.delta", **at, delta=call.arguments)
        yield self._event("response.function_call_arguments.done", **at, name=call.name, arguments=call.arguments)
        yield self._event("response.output_item.done", output_index=at["output_index"], item=done)
        self._output.append(done)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sent(kind)
        message = {**fields, "type": kind, "sequence_number": self._number}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(message, separators=(',', ':'))}\n\n".encode()

    def _response(self, status: str) -> dict[str, Any]:
        request = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": list(self._output),
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "temperature": request.temperature,
            "tool_choice": request.tool_choice or "auto",
            "tools": [tool.model_dump() for tool in request.tools or ()],
            "top_p": request.top_p,
            "usage": usage_json(self.usage) if status == "completed" else None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
