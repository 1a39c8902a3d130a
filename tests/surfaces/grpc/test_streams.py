"""Streams: what a peer that leaves, waits too long or reads slowly costs, and what others still get."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from debug_server import messages
from debug_server.errors import ConfigurationError
from debug_server.service import LOCAL
from debug_server.service.caller import ANONYMOUS
from debug_server.surfaces.grpc import Tls, build_server
from debug_server.surfaces.grpc.schema import SERVICE
from tests.certificates import self_signed
from tests.surfaces.grpc.conftest import Play
from tests.surfaces.grpc.serving import SECONDS, Client, Served, log_of, refusal

LINES = "for i in $(seq 20000); do echo line-$i-of-many; done"
SPARE = 2  # tasks that come and go by themselves
EXPECTED = b"".join(b"line-%d-of-many\n" % n for n in range(1, 20001))


def open_logs() -> int:
    """How many descriptors of logs and their indexes this process has."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, by another thread
            found += "/logs/" in os.readlink(f"/proc/self/fd/{name}")
    return found


def calls_under_way() -> int:
    """How many calls the server works on: it has a task for each, and few others."""
    return len(asyncio.all_tasks())


async def until(found: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something that nothing announces."""
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_follower_that_is_cut_off_goes_on_by_offset(play: Play) -> None:
    """Thirty cancelled streams, each resumed at the offset reached, give the bytes of one."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), LINES)
        chance, got, cuts = random.Random(7), b"", 0
        while len(got) < len(EXPECTED):
            stream = served.admin.follow("FollowLog", command_id=command.id, offset=len(got))
            for _ in range(chance.randrange(1, 3) if cuts < 30 else 10**9):
                if (piece := await stream.read()) is aio.EOF:
                    break
                assert piece.offset == len(got)
                got += piece.data[: chance.randrange(1, 20_000)] if cuts < 30 else piece.data
                if len(got) != piece.offset + len(piece.data):
                    break
            stream.cancel()
            cuts += 1
        assert got == EXPECTED

    play(scene)


def test_no_room_and_no_token_are_told(play: Play) -> None:
    """A follower for whom there is no room, and one whose token is revoked meanwhile, end with their codes."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo up; sleep 600")
        made = await served.admin.ask("CreateToken", name="short", scopes=["admin"])
        stream = served.client(made.token).follow("FollowLog", command_id=command.id)
        assert (await stream.read()).data == b"up\n"
        served.service.followers.limit = 1
        found, told = await refusal(served.admin.follow("FollowEvents").read())
        assert (found, told["code"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "too_many_followers")
        await served.admin.ask("RevokeToken", token_id=made.id)
        found, told = await refusal(stream.read())
        assert (found, told["code"]) == (grpc.StatusCode.UNAUTHENTICATED, "unauthorized")
        await until(lambda: served.service.followers.size == 0)

    play(scene)


def test_those_who_leave_release_everything(play: Play) -> None:
    """Followers of a log and of events that cancel, or whose deadline passes, leave no file and no task behind."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo begun; exec sleep 600")
        first = served.admin.follow("FollowLog", command_id=command.id)
        await first.read()
        logs, calls = open_logs(), calls_under_way()
        streams = [served.admin.follow("FollowLog", command_id=command.id) for _ in range(20)]
        streams += [served.admin.follow("FollowEvents") for _ in range(20)]
        for stream in streams:
            await stream.read()
        assert calls_under_way() >= calls + 40
        for stream in streams:
            stream.cancel()
        with pytest.raises(aio.AioRpcError) as caught:
            await served.admin.ask("WaitCommand", command_id=command.id, seconds=0.2)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        late = served.admin.follow("FollowLog", command_id=command.id, offset=6, seconds=0.2)
        with pytest.raises(aio.AioRpcError):
            await late.read()
        await until(lambda: open_logs() <= logs and calls_under_way() <= calls + SPARE)

    play(scene)


def test_a_lost_connection_releases_its_followers(play: Play) -> None:
    """When a channel closes under its followers the server ends their calls and lets their files go."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo begun; exec sleep 600")
        await served.admin.follow("FollowLog", command_id=command.id).read()
        made = await served.admin.ask("CreateToken", name="guest", scopes=["admin"])
        logs, calls = open_logs(), calls_under_way()
        channel = aio.insecure_channel(f"127.0.0.1:{served.port}", options=[("grpc.use_local_subchannel_pool", 1)])
        guest = Client(channel, made.token)
        streams = [guest.follow("FollowLog", command_id=command.id) for _ in range(10)]
        for stream in streams:
            await stream.read()
        assert calls_under_way() >= calls + 10
        await channel.close()
        await until(lambda: open_logs() <= logs and calls_under_way() <= calls + SPARE)

    play(scene)


def test_a_slow_reader_costs_only_itself(play: Play) -> None:
    """While one follower reads nothing, the command ends and another follower gets every byte."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "head -c 30000000 /dev/zero")
        slow = served.admin.follow("FollowLog", command_id=command.id)
        await slow.read()
        assert len(await log_of(served.admin, command.id)) == 30_000_000
        ended = await served.admin.ask("GetCommand", command_id=command.id)
        assert ended.exit.stdout_bytes == 30_000_000
        slow.cancel()

    play(scene)


def test_many_who_wait_do_not_make_the_server_deaf(play: Play) -> None:
    """With 200 calls waiting for one command, another call is answered, and then all of them are."""

    async def scene(served: Served) -> None:
        command = await served.run(await served.session(), "echo begun; exec sleep 600")
        stream = served.admin.follow("FollowLog", command_id=command.id)
        await stream.read()
        waiting = [asyncio.ensure_future(served.admin.ask("WaitCommand", command_id=command.id)) for _ in range(200)]
        assert (await served.admin.ask("WhoAmI")).name == "admin"
        await served.admin.ask("CancelCommand", command_id=command.id)
        assert {(await item).status for item in waiting} == {"cancelled"}

    play(scene)


def test_a_stranger_does_not_learn_why_a_check_fails(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one it is, and no more; folders and addresses are for who is known."""
    monkeypatch.setattr("debug_server.service.free_space._READY_BYTES", 1 << 80)

    async def scene(served: Served) -> None:
        found = await served.service.health.check(ANONYMOUS, messages.EmptyRequest())
        assert (found.ok, found.checks["disk"], found.checks["store"]) == (False, "failed", "ok")
        assert "bytes are free in" in (await served.service.health.check(LOCAL, messages.EmptyRequest())).checks["disk"]

    play(scene)


def test_health_is_looked_up(play: Play) -> None:
    """The standard health service says SERVING, knows our service's name, and NOT_SERVING once the server drains."""

    async def scene(served: Served) -> None:
        stub = health_pb2_grpc.HealthStub(served.admin.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        for name in ("", SERVICE.full_name):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=SECONDS)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        served.service.drain()
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING

    play(scene)


def test_reflection_describes_the_service(play: Play) -> None:
    """Reflection lists our service and hands out the file that defines it."""

    async def scene(served: Served) -> None:
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE.full_name),
        ]
        stub = reflection_pb2_grpc.ServerReflectionStub(served.admin.channel)
        listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(asked), timeout=SECONDS)]
        names = {item.name for item in listed.list_services_response.service}
        assert {SERVICE.full_name, "grpc.health.v1.Health"} <= names
        assert any(b"FollowLog" in file for file in described.file_descriptor_response.file_descriptor_proto)

    play(scene)


def test_stopping_ends_what_is_followed(play: Play) -> None:
    """A stopped server ends its streams within the grace, and the command goes on."""

    async def scene(served: Served) -> None:
        other = build_server(served.service, port=0)
        await other.start()
        command = await served.run(await served.session(), "echo begun; exec sleep 600")
        made = await served.admin.ask("CreateToken", name="guest", scopes=["admin"])
        async with aio.insecure_channel(f"127.0.0.1:{other.port}") as channel:
            stream = Client(channel, made.token).follow("FollowLog", command_id=command.id)
            await stream.read()
            async with asyncio.timeout(SECONDS):
                await other.stop(0.1)
                with pytest.raises(aio.AioRpcError):
                    await stream.read()
        assert (await served.admin.ask("GetCommand", command_id=command.id)).status == "running"

    play(scene)


def test_tls_is_spoken(play: Play, tmp_path: Path) -> None:
    """With a certificate the server answers those who trust it and nobody in plain text; a bad one is an error."""

    async def scene(served: Served) -> None:
        made = self_signed(tmp_path)
        tls = Tls(certificate=made.cert.read_bytes(), key=made.key.read_bytes())
        server = build_server(served.service, port=0, tls=tls)
        await server.start()
        trusting = grpc.ssl_channel_credentials(tls.certificate)
        async with aio.secure_channel(f"localhost:{server.port}", trusting) as channel:
            assert (await Client(channel, None).ask("Health")).ok
        async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(aio.AioRpcError):
                await Client(channel, None).ask("Health", seconds=5.0)
        await server.stop(0.0)
        with pytest.raises(ConfigurationError, match="certificate"):
            build_server(served.service, port=0, tls=Tls(certificate=b"no certificate", key=b"no key"))

    play(scene)
