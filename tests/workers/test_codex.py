"""Turns of the fake worker through the codex protocol: text, tools, approvals, interruption, death at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from debug_server.errors import HandshakeError, WorkerError, WorkerExitedError
from debug_server.workers import codex_turn
from debug_server.workers.codex import CodexConversation, CodexOptions
from debug_server.workers.codex_turn import TurnRequest
from debug_server.workers.turn_events import Ended, Text, TokenUsage, ToolCall, TurnEvent, TurnEventQueue
from tests.gateway.fake_codex import STEPS
from tests.gateway.fake_codex_channel import conversing


def run(work: Awaitable[None]) -> None:
    """In an event loop, with a deadline."""

    async def main() -> None:
        async with asyncio.timeout(90):
            await work

    asyncio.run(main())


def prompt(text: str, **more: Any) -> TurnRequest:
    """A turn with one message."""
    return TurnRequest(input=[{"type": "text", "text": text}], **more)


async def events_of(conversation: CodexConversation, request: TurnRequest) -> list[TurnEvent]:
    """Everything a turn says."""
    found: list[TurnEvent] = []
    async with conversation.turn(request) as turn:
        while not found or not isinstance(found[-1], Ended):
            if (event := await turn.read()) is not None:
                found.append(event)
    return found


def text_of(events: list[TurnEvent]) -> str:
    """The answer."""
    return "".join(event.text for event in events if isinstance(event, Text))


def test_an_answer_with_a_lost_part_is_an_error() -> None:
    """A line of 17 MB is not kept: its turn fails instead of passing for whole; its neighbour and the next go on."""

    async def work() -> None:
        async with conversing() as (conversation, _):
            beside = asyncio.ensure_future(events_of(conversation, prompt("words=20 delay=20")))
            await asyncio.sleep(0.1)
            with pytest.raises(WorkerError, match="dropped"):
                await events_of(conversation, prompt(f"big={17 << 20}"))
            assert text_of(await beside) == " ".join(f"w{i}" for i in range(20))
            assert text_of(await events_of(conversation, prompt("words=1"))) == "w0"

    run(work())


def test_many_turns_at_once_keep_their_words_apart() -> None:
    """Notifications are routed by thread and turn: 32 interleaved turns each get exactly their own text and usage."""

    async def work() -> None:
        async with conversing() as (conversation, _):
            asked = [prompt(f"words={n + 1} delay=1") for n in range(32)]
            answers = await asyncio.gather(*(events_of(conversation, request) for request in asked))
        for n, events in enumerate(answers):
            assert text_of(events) == " ".join(f"w{i}" for i in range(n + 1))
            last = events[-1]
            assert isinstance(last, Ended)
            assert (last.status, last.usage.prompt, last.usage.completion) == ("completed", 7, n + 1)

    run(work())


def test_approval_requests_are_declined() -> None:
    """A turn that asks for an approval hears ``decline`` at once and goes on."""

    async def work() -> None:
        async with conversing() as (conversation, _):
            assert text_of(await events_of(conversation, prompt("approve=1"))) == "decision=decline"
            assert conversation.declined == 1

    run(work())


def test_calls_of_declared_functions_come_together() -> None:
    """Functions called in parallel are all handed to the client, and the turn is over."""

    async def work() -> None:
        tool = {"type": "function", "name": "f", "description": "", "inputSchema": {}}
        async with conversing() as (conversation, _):
            events = await events_of(conversation, prompt("tool=f calls=3", tools=[tool]))
            calls = [event for event in events if isinstance(event, ToolCall)]
            assert [(call.call_id, call.arguments) for call in calls] == [
                (f"call_{n}", f'{{"n": {n}}}') for n in range(3)
            ]
            undeclared = prompt("tool=g", tools=[tool])
            async with conversation.turn(undeclared) as turn, asyncio.timeout(60):
                while conversation.rpc.counters.requests < 4:
                    assert not isinstance(await turn.read(), ToolCall)

    run(work())


def test_calls_come_with_their_tokens() -> None:
    """A worker that tells the tokens of calls only when the turn is interrupted is asked for them before the end."""

    async def work() -> None:
        tool = {"type": "function", "name": "f", "description": "", "inputSchema": {}}
        async with conversing() as (conversation, _):
            *calls, end = await events_of(conversation, prompt("tool=f calls=2 late=1", tools=[tool]))
            assert [type(call) for call in calls] == [ToolCall, ToolCall]
            assert end == Ended(status="completed", usage=TokenUsage(prompt=7, cached=2, completion=3))

    run(work())


def test_calls_whose_tokens_are_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for them is bounded: the calls reach the client all the same."""
    monkeypatch.setattr(codex_turn, "_USAGE_SECONDS", 0.1)
    monkeypatch.setattr(codex_turn, "_INTERRUPT_SECONDS", 0.1)

    async def work() -> None:
        tool = {"type": "function", "name": "f", "description": "", "inputSchema": {}}
        async with conversing({"FAKE_CODEX_JSONRPC_HANG": "turn/interrupt"}) as (conversation, _):
            *calls, end = await events_of(conversation, prompt("tool=f late=1", tools=[tool]))
            assert len(calls) == 1 and end == Ended(status="completed", usage=TokenUsage())

    run(work())


@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_any_step_of_a_turn_is_one_retryable_error(step: str) -> None:
    """Whatever the worker was doing when it died, its reader gets WorkerExitedError, or the complete answer."""

    async def work() -> None:
        async with conversing() as (conversation, channel):
            try:
                events = await events_of(conversation, prompt(f"words=4 die={step}"))
            except WorkerExitedError:
                assert step != "completed"
            else:
                assert step == "completed"
                assert text_of(events) == "w0 w1 w2 w3"
            assert await channel.process.wait() == -9

    run(work())


def test_leaving_a_turn_interrupts_it() -> None:
    """A reader that leaves makes the worker stop; the confirmation comes before the block is left."""

    async def work() -> None:
        async with conversing() as (conversation, _):
            async with conversation.turn(prompt("words=100000 delay=1")) as turn:
                while not isinstance(await turn.read(), Text):
                    pass
            seen = conversation.rpc.counters.notifications
            assert text_of(await events_of(conversation, prompt("words=2"))) == "w0 w1"
            assert conversation.rpc.counters.notifications - seen < 20

    run(work())


def test_a_conversation_that_is_closed_cancels_no_reader() -> None:
    """While turns are being left or read, ``close`` gives each reader WorkerExitedError, never a cancellation."""

    begun = asyncio.Semaphore(0)

    async def reader(conversation: CodexConversation, *, leave: bool) -> str:
        try:
            async with conversation.turn(prompt("words=100000 delay=1")) as turn:
                while True:
                    if isinstance(await turn.read(), Text):
                        begun.release()
                        if leave:
                            break
        except WorkerExitedError:
            return "exited"
        return "left"

    async def work() -> None:
        async with conversing({"FAKE_CODEX_JSONRPC_HANG": "turn/interrupt"}) as (conversation, _):
            readers = [asyncio.ensure_future(reader(conversation, leave=number % 2 == 0)) for number in range(6)]
            for _ in range(50):  # the three that stay go on reading, so that many pieces mean all have begun
                await begun.acquire()
            await conversation.close()
            assert set(await asyncio.gather(*readers)) == {"left", "exited"}

    run(work())


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"FAKE_CODEX_HANDSHAKE_MODE": "hang"}, "no handshake within"),
        ({"FAKE_CODEX_HANDSHAKE_MODE": "refuse"}, "not today"),
        ({"FAKE_CODEX_HANDSHAKE_MODE": "old", "FAKE_CODEX_VERSION": "0.53.0"}, "codex 0.53.0 does not offer"),
    ],
)
def test_a_handshake_that_fails_says_why(environ: dict[str, str], sentence: str) -> None:
    """Silence, refusal and a version without the methods are told apart, and the version is named."""

    async def work() -> None:
        options = CodexOptions(handshake_seconds=0.3 if "within" in sentence else 60)
        with pytest.raises(HandshakeError, match=sentence):
            async with conversing(environ, options):
                pass

    run(work())


@pytest.mark.parametrize("mode", ["flood", "half-lines", "huge-line"])
def test_noise_on_stdout_is_survived(mode: str) -> None:
    """A flood, lines that are no messages and one of 50 MB before the handshake harm nothing that follows."""

    async def work() -> None:
        async with conversing({"FAKE_CODEX_MODE": mode}) as (conversation, _):
            assert text_of(await events_of(conversation, prompt("words=2"))) == "w0 w1"
            counters = conversation.rpc.counters
            assert (counters.malformed >= 4) == (mode == "half-lines")
            assert counters.oversized == (1 if mode == "huge-line" else 0)

    run(work())


def test_a_failed_turn_carries_the_workers_words() -> None:
    """The error of a turn has the message and the codexErrorInfo."""

    async def work() -> None:
        async with conversing() as (conversation, _):
            with pytest.raises(WorkerError, match="the fake failed") as caught:
                await events_of(conversation, prompt("error=contextWindowExceeded"))
            assert caught.value.data["codexErrorInfo"] == "contextWindowExceeded"

    run(work())


def test_a_slow_reader_costs_only_itself() -> None:
    """Text that waits is joined into one event; beyond the bound the turn is given up."""

    async def work() -> None:
        box = TurnEventQueue(most=10)
        assert all(box.put(Text(text="ab")) for _ in range(5))
        assert not box.put(Text(text="c"))
        box.fail(WorkerError("too slow"))
        assert await box.get() == Text(text="ababababab")
        with pytest.raises(WorkerError):
            await box.get()

    run(work())
