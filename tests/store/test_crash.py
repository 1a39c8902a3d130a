"""A writer that is killed at a random moment."""

from __future__ import annotations

import random
import time

import pytest

from debug_server.model import CommandStatus
from debug_server.store import open_store

from . import programs
from .postgres_cluster import await_no_connection


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_leaves_whole_transactions(database_url: str, seed: int) -> None:
    """After kill -9 of a writing process every acknowledged end is there, and no transaction shows by halves."""
    with open_store(database_url) as store:
        session = store.sessions.create()
    with programs.start("live", database_url, str(session.id)) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline())]
        time.sleep(random.Random(seed).uniform(0.0, 0.2))  # the moment of the kill, not a wait for something
        process.kill()
        # From the same reader, which may have taken more than that line, and the last of it by halves.
        acknowledged += [int(line) for line in process.stdout.read().splitlines()]
    await_no_connection(database_url)  # a server may still be at the commit that the dead process sent
    with open_store(database_url) as store:
        commands = store.commands.in_session(session.id)
        ended = [command for command in commands if command.status is CommandStatus.SUCCEEDED]
        assert [command.sequence for command in commands] == list(range(1, len(commands) + 1))
        assert set(acknowledged) <= {command.id for command in ended}
        assert len(commands) - len(ended) <= 1
        assert [artifact.command_id for artifact in store.artifacts.in_session(session.id)] == [
            item.id for item in ended
        ]
        events = store.events.read(limit=100_000)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        finished = [event.command_id for event in events if event.kind == "command.finished"]
        assert finished == [command.id for command in ended]
        assert store.commands.add(session_id=session.id, argv=["x"]).sequence == len(commands) + 1
