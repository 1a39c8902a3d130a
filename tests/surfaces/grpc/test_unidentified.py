"""Callers who have shown nothing hold neither the server's memory nor its places."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from debug_server.surfaces.grpc import ConnectionLimits
from debug_server.surfaces.grpc import unidentified as module
from debug_server.surfaces.grpc.unidentified import UnidentifiedLimits
from tests.running import eventually
from tests.surfaces.grpc.conftest import Play
from tests.surfaces.grpc.serving import SECONDS, Served
from tests.surfaces.silent_connections import silent_connections

BIG = 18 << 20
STREAM_SECONDS = 1.0
WATCH, CHECK = "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check"
HANDED_ON = (("x-forwarded-for", "192.0.2.1"),)  # what a proxy adds: the caller is then a stranger


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(data).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + data


def open_call(path: str, message: bytes) -> bytes:
    """What begins a call without a token; ``message`` has its five bytes of prefix."""
    pairs = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "content-type": "application/grpc"}
    head = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in {**pairs, "te": "trailers", **dict(HANDED_ON)}.items()
    )
    settings = frame(4, 0, 0, b"") + frame(4, 1, 0, b"")
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + frame(1, 4, 1, head) + frame(0, 0, 1, message)


def test_unknown_names_hold_nothing(play: Play) -> None:
    """A watch or check of an unknown or long name ends at once, with a status that says why."""

    async def scene(served: Served) -> None:
        stub = health_pb2_grpc.HealthStub(served.admin.channel)
        for name, status in (
            ("nobody", grpc.StatusCode.NOT_FOUND),
            ("x" * BIG, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(aio.AioRpcError) as told:
                await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            assert told.value.code() == status
            with pytest.raises(aio.AioRpcError) as told:
                await stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS).read()
            assert told.value.code() == status

    play(scene)


def test_a_call_without_a_token_is_refused_unread(play: Play) -> None:
    """A method that needs a token answers before the message has arrived."""

    async def scene(served: Served) -> None:
        call = served.admin.channel.stream_unary("/debug_server.v1.DebugServer/OpenSession")
        with pytest.raises(aio.AioRpcError) as told:
            await call(_never(), timeout=SECONDS)
        assert told.value.code() == grpc.StatusCode.UNAUTHENTICATED

    play(scene)


def stranger(port: int) -> aio.Channel:
    """A connection of its own."""
    return aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


def test_streams_of_strangers_end(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stranger's watches some are served, for a while; those of the server's user stay."""
    short = UnidentifiedLimits(streams=3, streams_each=2, stream_seconds=STREAM_SECONDS)
    monkeypatch.setattr(module, "UnidentifiedLimits", lambda: short)

    async def scene(served: Served) -> None:
        own = health_pb2_grpc.HealthStub(served.admin.channel).Watch(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        await own.read()
        async with asyncio.timeout(SECONDS):
            while not await _five_strangers_watch(served.port):
                pass
        assert not own.done()
        own.cancel()

    play(scene)


async def _five_strangers_watch(port: int) -> bool:
    """Three of them are served, and all are ended; False when the first was over before the last had asked."""
    began, ask = time.monotonic(), health_pb2.HealthCheckRequest()
    async with stranger(port) as one, stranger(port) as other:
        held, refused = [], []
        for channel in (one, one, one, other, other):
            call = health_pb2_grpc.HealthStub(channel).Watch(ask, timeout=SECONDS, metadata=HANDED_ON)
            try:
                await call.read()
                held.append(call)
            except aio.AioRpcError as error:
                refused.append(error.code())
        in_time = time.monotonic() - began < STREAM_SECONDS
        assert not in_time or (len(held), refused) == (3, [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2)
        for call in held:
            with pytest.raises(aio.AioRpcError) as told:
                await call.read()
            assert told.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    return in_time


def test_half_a_message_is_not_waited_for(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's message must come soon; others of the server's user are served meanwhile."""
    monkeypatch.setattr(module, "UnidentifiedLimits", lambda: UnidentifiedLimits(reads=2, read_seconds=1.0))

    async def scene(served: Served) -> None:
        async with stranger(served.port) as channel:
            stuck = [channel.stream_unary(CHECK)(_never(), metadata=HANDED_ON, timeout=SECONDS) for _ in range(8)]
            own = health_pb2_grpc.HealthStub(served.admin.channel)
            assert (await own.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)).status
            for call in stuck:
                with pytest.raises(aio.AioRpcError) as told:
                    await call
                assert told.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED

    play(scene)


def test_strangers_leave_places_for_others(play: Play) -> None:
    """With every place taken by strangers' watches, the server's user soon finds one, and their age ends them all."""
    first = open_call(WATCH, b"\0\0\0\0\0")

    async def scene(served: Served) -> None:
        with silent_connections(served.port, 40, first) as held:

            def all_cut() -> bool:
                return all(map(is_closed, held))

            async with asyncio.timeout(SECONDS), stranger(served.port) as channel:
                check = health_pb2_grpc.HealthStub(channel).Check
                assert (await check(health_pb2.HealthCheckRequest(), wait_for_ready=True)).status
                own = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                await own.read()
                await asyncio.to_thread(eventually, all_cut, SECONDS, "the end of every stranger's connection")
                assert not own.done() and served.admin.channel.get_state() == grpc.ChannelConnectivity.READY
                assert (await served.admin.ask("WhoAmI")).name == "admin"
                own.cancel()

    play(scene, limits=ConnectionLimits(max_connections=16, unidentified_seconds=3.0))


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has cut it."""
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


async def _never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""
