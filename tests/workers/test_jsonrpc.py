"""JSON-RPC over a channel: many calls at once, and every way in which a worker's lines can be wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from debug_server.errors import DebugServerError, WorkerBusyError, WorkerError, WorkerExitedError, WorkerTimeoutError
from debug_server.workers.jsonrpc import JsonRpc, RpcRefusal
from debug_server.workers.line_splitter import LineSplitter
from tests.gateway.fake_codex_channel import ScriptedChannel


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        await asyncio.sleep(0)


class Side:
    """One conversation and everything it was told."""

    def __init__(self) -> None:
        self.channel = ScriptedChannel()
        self.notifications: list[tuple[str, Any]] = []
        self.losses: list[DebugServerError] = []
        self.rpc = JsonRpc(
            self.channel,
            on_notification=lambda method, params: self.notifications.append((method, params)),
            on_request=self._requested,
            on_lost=self.losses.append,
            jitter=lambda: 0.0,
        )
        self.rpc.start()

    def _requested(self, number: int | str, method: str, params: Any) -> Any:
        if method == "refuse":
            raise RpcRefusal("never")
        return {"got": method}

    def feed(self, *messages: object) -> None:
        self.channel.feed(b"".join(json.dumps(item).encode() + b"\n" for item in messages))

    async def sent(self, count: int) -> list[dict[str, Any]]:
        await until(lambda: len(self.channel.sent) >= count)
        return [json.loads(line) for line in self.channel.sent]


def run(test: Callable[[Side], Awaitable[None]]) -> None:
    """A test in an event loop, with a side that is closed behind it."""

    async def main() -> None:
        side = Side()
        try:
            async with asyncio.timeout(90):
                await test(side)
        finally:
            await side.rpc.close()

    asyncio.run(main())


def test_answers_find_their_calls_in_any_order() -> None:
    """Calls made together each get the answer with their id, and an error is raised where it belongs."""

    async def test(side: Side) -> None:
        calls = [asyncio.ensure_future(side.rpc.call(f"m{n}", {"n": n}, seconds=60)) for n in range(3)]
        sent = await side.sent(3)
        assert "jsonrpc" not in sent[0]
        ids = [message["id"] for message in sent]
        side.feed({"id": ids[2], "result": "c"}, {"id": ids[0], "result": "a"})
        side.feed({"id": ids[1], "error": {"code": -1, "message": "no b", "data": {"x": 1}}})
        assert (await calls[0], await calls[2]) == ("a", "c")
        with pytest.raises(WorkerError, match="no b") as caught:
            await calls[1]
        assert (caught.value.number, caught.value.data) == (-1, {"x": 1})

    run(test)


def test_what_is_no_message_is_survived_and_counted() -> None:
    """Half lines, other JSON, bytes that are no text, unknown ids: counted, and the next answer still arrives."""

    async def test(side: Side) -> None:
        call = asyncio.ensure_future(side.rpc.call("m", {}, seconds=60))
        (sent,) = await side.sent(1)
        side.channel.feed(b'{"id": \nnot json\n[1]\n\xff\xfe\n"text"\n' + b"[" * 100_000 + b"\n\n  \n")
        side.feed({"id": 999, "result": 1}, {"id": "x", "result": 1}, {"ready": True})
        line = json.dumps({"id": sent["id"], "result": {"é": "ü"}}, ensure_ascii=False).encode() + b"\n"
        for at in range(len(line)):
            side.channel.feed(line[at : at + 1])  # split inside characters, too
        assert await call == {"é": "ü"}
        assert (side.rpc.counters.malformed, side.rpc.counters.stray) == (6, 3)

    run(test)


def test_a_line_without_end_costs_no_memory() -> None:
    """A line of 50 MB is dropped while it arrives; the message behind it is read."""
    cutter = LineSplitter(limit=1 << 20)
    for _ in range(50):
        assert list(cutter.feed(b"x" * (1 << 20))) == []
        assert cutter.pending <= 1 << 20
    assert list(cutter.feed(b'\n{"a":1}\nhalf')) == [b'{"a":1}']
    assert (cutter.oversized, cutter.pending) == (1, 4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=30).filter(lambda item: b"\n" not in item and item.strip() == item)), st.data())
def test_lines_do_not_depend_on_how_they_arrive(lines: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut into pieces, the same lines come out; empty ones are nothing."""
    whole = b"".join(line + b"\n" for line in lines)
    cutter = LineSplitter()
    found: list[bytes] = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        found += cutter.feed(whole[:size])
        whole = whole[size:]
    assert found == [line for line in lines if line]


def test_requests_of_the_worker_are_always_answered() -> None:
    """A policy's result or refusal goes back under the worker's own id, before anything later is read."""

    async def test(side: Side) -> None:
        side.feed({"id": 0, "method": "ask", "params": {}}, {"id": "s", "method": "refuse"}, {"method": "news"})
        first, second = await side.sent(2)
        assert first == {"id": 0, "result": {"got": "ask"}}
        assert second == {"id": "s", "error": {"code": -32601, "message": "never"}}
        assert side.notifications == [("news", {})]

    run(test)


@pytest.mark.parametrize("head", [b'{"id": %s, "result": "', b'{"jsonrpc":"2.0","id":%s,"result":"', b'{"result": "'])
def test_what_is_too_long_to_be_read_fails_at_once(head: bytes) -> None:
    """A call whose answer is lost does not wait for its deadline, a request of the worker's is refused, others live."""

    async def test(side: Side) -> None:
        calls = [asyncio.ensure_future(side.rpc.call("m", {}, seconds=100)) for _ in range(2)]
        first, second = (message["id"] for message in await side.sent(2))
        long = b"x" * (17 << 20)
        tail = b'"}\n' if b"%s" in head else b'", "id": %d}\n' % first
        side.channel.feed(head.replace(b"%s", b"%d" % first) + long + tail)
        with pytest.raises(WorkerError, match="too long to be read: more than 16777216 bytes"):
            async with asyncio.timeout(50):
                await calls[0]
        asked = b'{"method": "ask", "params": "' + long + b'", "id": %d}\n' % second
        side.channel.feed(asked)
        refused = (await side.sent(3))[2]
        assert (refused["id"], refused["error"]["code"]) == (second, -32600)
        side.feed({"id": second, "result": "fine"})
        assert await calls[1] == "fine"
        assert side.rpc.counters.oversized == 2

    run(test)


def test_an_overload_is_tried_again_until_the_deadline() -> None:
    """-32001 is repeated with growing waits; success ends it, and the deadline turns it into worker_busy."""

    async def test(side: Side) -> None:
        call = asyncio.ensure_future(side.rpc.call("m", {}, seconds=60))
        for attempt in range(3):
            sent = await side.sent(attempt + 1)
            overloaded = {"code": -32001, "message": "Server overloaded; retry later."}
            last = {"id": sent[attempt]["id"]}
            side.feed({**last, "error": overloaded} if attempt < 2 else {**last, "result": "done"})
        assert await call == "done"
        assert side.rpc.counters.retries == 2
        call = asyncio.ensure_future(side.rpc.call("m", {}, seconds=2))
        sent = await side.sent(4)
        side.feed({"id": sent[3]["id"], "error": overloaded})
        with pytest.raises(WorkerBusyError):
            await call

    run(test)


def test_a_call_ends_at_its_deadline_and_a_late_answer_harms_nobody() -> None:
    """Without an answer WorkerTimeoutError names the method; the answer that comes later is stray."""

    async def test(side: Side) -> None:
        with pytest.raises(WorkerTimeoutError, match="slow"):
            await side.rpc.call("slow", {}, seconds=0.01)
        (sent,) = await side.sent(1)
        side.feed({"id": sent["id"], "result": 1}, {"method": "after"})
        await until(lambda: bool(side.notifications))
        assert side.rpc.counters.stray == 1

    run(test)


def test_the_end_of_the_worker_ends_every_call() -> None:
    """All that wait, and all that come later, get the retryable WorkerExitedError; half a last line is counted."""

    async def test(side: Side) -> None:
        calls = [asyncio.ensure_future(side.rpc.call("m", {}, seconds=60)) for _ in range(3)]
        await side.sent(3)
        side.channel.feed(b'{"id": 1, "resu')
        side.channel.feed(b"")
        for call in calls:
            with pytest.raises(WorkerExitedError):
                await call
        with pytest.raises(WorkerExitedError):
            await side.rpc.call("m", {}, seconds=60)
        assert side.rpc.counters.malformed == 1
        assert len(side.losses) == 1

    run(test)


def test_a_worker_that_does_not_read_makes_calls_wait_and_reading_go_on() -> None:
    """With megabytes unwritten further calls wait for room; notifications and answers are still taken."""

    async def test(side: Side) -> None:
        side.channel.room.clear()
        big = {"text": "x" * (5 << 20)}
        first = asyncio.ensure_future(side.rpc.call("big", big, seconds=60))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(side.rpc.call("small", {}, seconds=60))
        side.feed({"method": "news"}, {"id": 7, "method": "ask"})
        await until(lambda: bool(side.notifications))
        assert not side.channel.sent
        assert side.rpc.counters.calls == 1
        side.channel.room.set()
        sent = await side.sent(3)
        assert [message.get("method") for message in sent] == ["big", None, "small"]
        for call in (first, second):
            call.cancel()

    run(test)
