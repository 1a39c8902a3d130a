"""Iterators over lists, waits, and operations that a server does not have."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient, calls, paging
from debug_server.errors import InvalidInputError, UnsupportedByServerError
from debug_server.messages import CommandReply
from tests.servers import ServerProcess


def test_an_iterator_crosses_pages(client: DebugServerClient) -> None:
    """Every item comes once, in the order of the pages; ``limit`` bounds the number of items."""
    session = client.open_session("project", "main")
    made = [client.submit_command(session.id, ["true"]).id for _ in range(5)]
    assert [command.id for command in client.commands(session.id)] == made
    assert [command.id for command in _in_pages_of(2, client, session.id)] == made
    assert [command.id for command in client.commands(session.id, limit=3)] == made[:3]
    assert [command.sequence for command in client.commands(session.id, after=3)] == [4, 5]
    for number in made:
        assert client.wait_command(number).ended
    kinds = [event.kind for event in client.events(session_id=session.id)]
    assert kinds == [event.kind for event in client.read_events(session_id=session.id, limit=1000)]
    assert len(kinds) > 5
    client.close_session(session.id)


def _in_pages_of(size: int, client: DebugServerClient, session_id: int) -> list[CommandReply]:
    """The items of a list, by pages of this size."""
    walk, found, pages = paging.Paging(calls.list_commands(session_id)), list[CommandReply](), 0
    while (call := walk.next_call) is not None:
        page = client.send(replace(call, fields={**call.fields, "limit": size}))
        found += walk.take(page)
        pages += 1
    assert pages == 3
    return found


def test_a_wrong_limit_is_refused(client: DebugServerClient) -> None:
    """The server's refusal comes with the first item."""
    with pytest.raises(InvalidInputError, match="limit"):
        next(client.sessions(limit=-1))


async def _awaited(server: ServerProcess) -> None:
    async with AsyncDebugServerClient(base_url=server.base_url, token=server.token) as client:
        session = await client.open_session("project", "main")
        made = [(await client.submit_command(session.id, ["true"])).id for _ in range(3)]
        assert [command.id async for command in client.commands(session.id)] == made
        for number in made:
            assert (await client.wait_command(number)).ended
        await client.close_session(session.id)


def test_the_awaited_iterator(server: ServerProcess, repository: Path) -> None:
    """``async for`` over the same lists."""
    asyncio.run(_awaited(server))


def test_a_wait_ends_with_the_command_or_says_that_it_did_not(client: DebugServerClient) -> None:
    """Without a limit the reply has ended; with one that is too short ``ended`` is False."""
    session = client.open_session("project", "main")
    command = client.submit_command(session.id, ["cat"], stdin=True)
    assert not client.wait_command(command.id, seconds=0).ended
    assert not client.wait_command(command.id, seconds=0.2).ended
    client.write_stdin(command.id, b"bye", close=True)
    assert client.wait_command(command.id).exit_code == 0
    with pytest.raises(InvalidInputError, match="timeout"):
        client.wait_command(command.id, seconds=-1)
    client.close_session(session.id)


def test_a_path_that_the_server_does_not_have(client: DebugServerClient, server: ServerProcess) -> None:
    """An operation whose path is unknown there is explained; below /api/v1 the same server has it."""
    with DebugServerClient(base_url=f"{server.base_url}/api/v1", token=server.token) as versioned:
        assert versioned.list_tasks().items == []
    with (
        DebugServerClient(base_url=f"{server.base_url}/api/v0", token=server.token) as other,
        pytest.raises(UnsupportedByServerError, match=r"no operation 'list_tasks'.*pip install -U debug-server"),
    ):
        other.list_tasks()
