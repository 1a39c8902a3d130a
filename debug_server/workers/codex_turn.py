"""One turn of a codex worker: started, read event by event, interrupted when its reader leaves.

begin --> thread/start --> (history) --> turn/start --> text, tool calls --> ended | failed
                                              \\-- leave: turn/interrupt, until the worker confirms
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from debug_server.errors import DebugServerError, WorkerError
from debug_server.workers.jsonrpc import JsonRpc, Params
from debug_server.workers.turn_events import Ended, Text, TokenUsage, ToolCall, TurnEvent, TurnEventQueue

_INTERRUPT_SECONDS = 5.0
# Function calls of one model response arrive as several requests. Seconds to wait for another one after a call, and
# after the tokens of the response were reported.
_AFTER_CALL_SECONDS, _AFTER_USAGE_SECONDS = 0.25, 0.02
_USAGE_SECONDS = 5.0  # for the worker to report the tokens of an interrupted turn
_CLIENT_CALLS = {"contentItems": [{"type": "inputText", "text": "the client makes this call"}], "success": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """The parameters of a turn, in terms of the worker's protocol."""

    model: str | None = None
    cwd: str | None = None
    approval_policy: str = "never"
    sandbox: str = "read-only"
    base_instructions: str | None = None
    developer_instructions: str | None = None
    history: Sequence[Mapping[str, Any]] = ()  # items of the Responses API
    input: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    effort: str | None = None
    output_schema: Mapping[str, Any] | None = None

    def thread_params(self) -> dict[str, Any]:
        """For thread/start."""
        params: dict[str, Any] = {
            "ephemeral": True,
            "model": self.model,
            "cwd": self.cwd,
            "approvalPolicy": self.approval_policy,
            "sandbox": self.sandbox,
            "baseInstructions": self.base_instructions,
            "developerInstructions": self.developer_instructions,
            "dynamicTools": list(self.tools) or None,
        }
        return {name: value for name, value in params.items() if value is not None}

    def turn_params(self, thread_id: str) -> dict[str, Any]:
        """For turn/start."""
        params = {"threadId": thread_id, "input": list(self.input)}
        more = {"effort": self.effort, "outputSchema": self.output_schema}
        return params | {name: value for name, value in more.items() if value is not None}


class Turn:
    """A running turn; the conversation creates it and passes on the notifications of its thread."""

    def __init__(self, rpc: JsonRpc, request: TurnRequest, *, seconds: float, routes: dict[str, Turn]) -> None:
        self._rpc = rpc
        self._request = request
        self._seconds = seconds
        self._routes = routes
        self._events_queue = TurnEventQueue()
        self._begun: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._item: str | None = None  # the message that deltas belong to
        self._items_passed_on: set[str] = set()  # items whose text was passed on
        self._tools = {str(tool["name"]) for tool in request.tools}
        self._called: list[int | str] = []  # ids of the worker's unanswered requests for function calls
        self._last_call: asyncio.TimerHandle | None = None
        self._usage_task: asyncio.Task[None] | None = None  # interrupts a turn after its calls, to get its tokens
        self.thread_id: str | None = None
        self.turn_id: str | None = None
        self.usage = TokenUsage()
        self._has_final_usage = False  # usage includes the tokens of the last call
        self.is_stuck = False  # left, and the worker did not confirm that it has stopped

    def begin(self) -> None:
        """Start it in the background; errors are raised by ``read``."""
        self._begun = asyncio.ensure_future(self._begin())

    async def _begin(self) -> None:
        try:
            started = await self._rpc.call("thread/start", self._request.thread_params(), seconds=self._seconds)
            self.thread_id = _text_at(started, "thread", "id")
            self._routes[self.thread_id] = self
            if self._request.history:
                items = {"threadId": self.thread_id, "items": list(self._request.history)}
                await self._rpc.call("thread/inject_items", items, seconds=self._seconds)
            begun = await self._rpc.call("turn/start", self._request.turn_params(self.thread_id), seconds=self._seconds)
            self.turn_id = _text_at(begun, "turn", "id")
            self._events_queue.touch()
        except DebugServerError as error:
            self._fail(error)

    async def read(self) -> TurnEvent | None:
        """The next event; None for activity without one. Raises the error of a failed turn."""
        return await self._events_queue.get()

    async def leave(self) -> None:
        """Make sure that the worker stops: interrupt the turn, and wait for the confirmation."""
        if self._last_call is not None:
            self._last_call.cancel()
        if self._usage_task is not None:
            self._usage_task.cancel()
        try:
            async with asyncio.timeout(_INTERRUPT_SECONDS):
                await self._interrupt_begun()
        except (TimeoutError, DebugServerError):
            self.is_stuck = self._rpc.is_open
        finally:
            if self._begun is not None:
                self._begun.cancel()

    async def _interrupt_begun(self) -> None:
        """Interrupt it unless it is over; a turn that is being started must get its id first."""
        if self._begun is not None and not self._begun.done():
            await asyncio.wait({self._begun})
        if self.turn_id is not None and not self._over.is_set():
            await self._interrupt()

    async def _interrupt(self) -> None:
        which = {"threadId": self.thread_id, "turnId": self.turn_id}
        # In this order: an answered call would let the model continue, and cost tokens, before the interruption.
        interrupting = asyncio.ensure_future(self._rpc.call("turn/interrupt", which, seconds=_INTERRUPT_SECONDS))
        await asyncio.sleep(0)
        self._answer_calls()
        with suppress(WorkerError):  # it has just ended
            await interrupting
            await self._over.wait()

    def _answer_calls(self) -> None:
        with suppress(DebugServerError):
            while self._called:
                self._rpc.answer(self._called.pop(), _CLIENT_CALLS)

    async def free(self) -> None:
        """Let the worker forget the thread."""
        with suppress(DebugServerError):
            await self._rpc.call("thread/unsubscribe", {"threadId": self.thread_id}, seconds=_INTERRUPT_SECONDS)
        if self.thread_id is not None:
            self._routes.pop(self.thread_id, None)

    def on_lost(self, error: DebugServerError) -> None:
        """Handle the loss of the worker: ``read`` raises ``error``."""
        self._over.set()
        self._events_queue.fail(error)

    def on_oversized_line(self) -> None:
        """Handle a line of the worker that was too long: the answer is incomplete, so the turn fails."""
        self._fail(WorkerError("a message of the worker with part of the answer was too long and was dropped"))

    def on_notification(self, method: str, params: Params) -> None:
        """Handle one notification of the thread."""
        turn = params.get("turnId")
        if turn is not None and self.turn_id is not None and turn != self.turn_id:
            return
        if method == "item/agentMessage/delta":
            self._on_text(str(params.get("itemId")), str(params.get("delta", "")))
        elif method == "item/completed":
            self._on_item_completed(params.get("item"))
        elif method == "thread/tokenUsage/updated":
            self._on_usage(params.get("tokenUsage"))
        elif method == "turn/completed":
            self._on_turn_completed(params.get("turn"))
        else:
            self._events_queue.touch()

    def _on_text(self, item: str, text: str) -> None:
        if not text:
            return
        if self._item is not None and item != self._item:
            text = "\n\n" + text  # another message of the same turn
        self._item = item
        self._items_passed_on.add(item)
        if not self._events_queue.put(Text(text=text)):
            self._fail(WorkerError("the client reads too slowly: more than 8 Mi characters of its answer wait"))

    def _on_item_completed(self, item: Any) -> None:
        if (
            isinstance(item, dict)
            and item.get("type") == "agentMessage"
            and str(item.get("id")) not in self._items_passed_on
        ):
            self._on_text(str(item.get("id")), str(item.get("text") or ""))
        else:
            self._events_queue.touch()

    def _on_usage(self, usage: Any) -> None:
        total = usage.get("total") if isinstance(usage, dict) else None
        if isinstance(total, dict):
            self.usage = TokenUsage(
                prompt=_count(total, "inputTokens"),
                cached=_count(total, "cachedInputTokens"),
                completion=_count(total, "outputTokens"),
                reasoning=_count(total, "reasoningOutputTokens"),
            )
            self._has_final_usage = True
        if self._called:
            self._expect_calls(_AFTER_USAGE_SECONDS)
        self._events_queue.touch()

    def on_tool_call(self, number: int | str, params: Params) -> bool:
        """Handle a function call of the model; returns whether the client declared the function."""
        if params.get("tool") not in self._tools:
            return False
        self._called.append(number)
        self._has_final_usage = False
        arguments = json.dumps(params.get("arguments"))
        self._events_queue.put(
            ToolCall(call_id=str(params.get("callId")), name=str(params["tool"]), arguments=arguments)
        )
        self._expect_calls(_AFTER_CALL_SECONDS)
        return True

    def _expect_calls(self, seconds: float) -> None:
        if self._last_call is not None:
            self._last_call.cancel()
        self._last_call = asyncio.get_running_loop().call_later(seconds, self._calls_complete)

    def _calls_complete(self) -> None:
        if self._usage_task is not None:
            return
        if self._has_final_usage:
            self._events_queue.put(Ended(status="completed", usage=self.usage))
        else:
            self._usage_task = asyncio.ensure_future(self._interrupt_and_end())

    async def _interrupt_and_end(self) -> None:
        """Interrupt the turn, so that codex reports the tokens of its function calls; then end it with them."""
        with suppress(TimeoutError, DebugServerError):
            async with asyncio.timeout(_USAGE_SECONDS):
                await self._interrupt_begun()
        self._events_queue.put(Ended(status="completed", usage=self.usage))

    def _on_turn_completed(self, turn: Any) -> None:
        if self._over.is_set():
            return
        self._over.set()
        if self._usage_task is not None:
            return  # _interrupt_and_end() waits for this and puts the last event
        status = turn.get("status") if isinstance(turn, dict) else None
        if status in ("completed", "interrupted"):
            self._events_queue.put(Ended(status=status, usage=self.usage))
            return
        error = turn.get("error") if isinstance(turn, dict) else None
        details = error if isinstance(error, dict) else {}
        self._events_queue.fail(
            WorkerError(str(details.get("message") or "the turn failed without a reason"), data=details)
        )

    def _fail(self, error: DebugServerError) -> None:
        self._events_queue.fail(error)


def _text_at(answer: Any, *names: str) -> str:
    for name in names:
        answer = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(answer, str):
        raise WorkerError(f"the worker's answer has no {'.'.join(names)}")
    return answer


def _count(table: Mapping[str, Any], name: str) -> int:
    value = table.get(name, 0)
    return value if isinstance(value, int) else 0
