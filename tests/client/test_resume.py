"""Followers and requests over a wire that breaks and a server that dies: no gap, no repeat, nothing done twice."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import sys
from pathlib import Path

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.following import Lines
from tests.client.serving import ServerProcess, broken_wire, make_repository, serving

# Bytes of a known sequence, at a pace that lets a server die in between.
WRITER = """
import os, random, time
source, total = random.Random(5), 0
while total < {size}:
    data = source.randbytes(source.randrange(1, 40000))
    os.write(1, data)
    total += len(data)
    time.sleep({pause})
"""


def writer(size: int, pause: float) -> list[str]:
    """A program that writes a bit more than ``size`` bytes."""
    return [sys.executable, "-I", "-S", "-c", WRITER.format(size=size, pause=pause)]


def expected(size: int) -> str:
    """The digest of what it writes."""
    source, total, digest = random.Random(5), 0, hashlib.sha256()
    while total < size:
        data = source.randbytes(source.randrange(1, 40000))
        digest.update(data)
        total += len(data)
    return digest.hexdigest()


def test_a_follower_survives_a_wire_that_breaks(server: ServerProcess, repository: Path) -> None:
    """8 MiB followed over connections that break at random places arrive once, whole and in order."""
    size, digest, offset = 8 << 20, hashlib.sha256(), 0
    with (
        broken_wire(server, random.Random(1)) as wire,
        DebugServerClient(base_url=server.base_url, token=server.token) as direct,
        DebugServerClient(base_url=wire.base_url, token=server.token) as client,
    ):
        run = direct.start_run("project", "main", writer(size, 0.0))
        for piece in client.follow_log(run.command.id):
            assert piece.offset == offset
            offset = piece.end
            digest.update(piece.data)
        assert wire.cuts > 5
        assert digest.hexdigest() == expected(size)
        assert offset == direct.get_command(run.command.id).log_bytes


def test_followers_survive_servers_that_are_killed(tmp_path: Path, nothing_left: None) -> None:
    """Over three kills of the server both clients see every byte once, and the command ends as if nothing happened."""
    size = 3 << 20
    with serving(tmp_path / "server") as server, broken_wire(server) as wire:
        path = make_repository(tmp_path / "project")
        with DebugServerClient(base_url=wire.base_url, token=server.token) as client:
            client.register_repository("project", str(path))
            run = client.start_run("project", "main", [*writer(size, 0.02)])
            asyncio.run(_follow_and_kill(server, wire.base_url, run.command.id, size))
            assert client.wait_command(run.command.id).status == "succeeded"


async def _follow_and_kill(server: ServerProcess, base_url: str, command_id: int, size: int) -> None:
    async with AsyncDebugServerClient(base_url=base_url, token=server.token) as client:
        kills = asyncio.create_task(_kill_three_times(server))
        with DebugServerClient(base_url=base_url, token=server.token) as other:
            twin = asyncio.create_task(asyncio.to_thread(lambda: _collect(other, command_id)))
            pieces = [piece async for piece in client.follow_log(command_id)]
            await kills
            whole = b"".join(piece.data for piece in pieces)
            assert hashlib.sha256(whole).hexdigest() == expected(size)
            assert await twin == whole
        assert pieces[0].offset == 0
        assert all(one.end == two.offset for one, two in itertools.pairwise(pieces))
        assert pieces[-1].end == (await client.get_command(command_id)).log_bytes >= size


def _collect(client: DebugServerClient, command_id: int) -> bytes:
    return b"".join(piece.data for piece in client.follow_log(command_id))


async def _kill_three_times(server: ServerProcess) -> None:
    for _ in range(3):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


def test_a_lost_answer_does_not_run_a_command_twice(server: ServerProcess, repository: Path) -> None:
    """A submission whose answer never arrives is sent again under its key: there is one command, and it is returned."""
    with (
        broken_wire(server) as wire,
        DebugServerClient(base_url=wire.base_url, token=server.token) as client,
    ):
        session = client.open_session("project", "main")
        wire.drop_next_answer.set()
        command = client.submit_command(session.id, ["true"])
        assert wire.cuts == 1
        assert [item.id for item in client.list_commands(session.id)] == [command.id]
        wire.drop_next_answer.set()
        assert len(client.fork_session(session.id)) == 1
        assert len([item for item in client.list_sessions(limit=1000) if item.metadata.get("forked_from")]) == 1
        client.close_session(session.id)


def test_lines_are_whole_or_not_at_all() -> None:
    """Lines come out of pieces cut at any place, once each; an unfinished one never does."""
    body = b"one\n\xe2\x80\xa8two\r\x85\n\nthree\nunfin"
    for step in range(1, len(body) + 1):
        lines = Lines()
        found = [line for start in range(0, len(body), step) for line in lines.feed(body[start : start + step])]
        assert found == [b"one", b"\xe2\x80\xa8two\r\x85", b"three"]
