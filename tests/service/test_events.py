"""Events are read by cursor, however many of them a filter leaves out."""

from __future__ import annotations

import asyncio
from pathlib import Path

from debug_server import messages as m
from debug_server.app import Local
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from debug_server.service import LOCAL


def test_events_that_a_filter_leaves_out_are_looked_at_once(tmp_path: Path) -> None:
    """The cursor of a page that is not full is at the newest event; that of a full page at its last event."""
    with Local(RunnerSettings(RunnerPaths.from_root(tmp_path / "a")), f"sqlite:///{tmp_path}/m.db") as local:
        wanted = [local.store.events.append("wanted") for _ in range(3)]
        for _ in range(5):
            local.store.events.append("other")

        def read(after: int, limit: int = 2) -> tuple[list[int], int]:
            request = m.ReadEvents(after=after, limit=limit, kind="wanted")
            page = asyncio.run(local.service.events.read(LOCAL, request))
            return [item.seq for item in page.items], page.next_after

        last = local.store.events.last()
        assert read(0) == (wanted[:2], wanted[1])
        assert read(wanted[1]) == (wanted[2:], last)
        assert read(last) == ([], last)
        new = local.store.events.append("wanted")
        assert read(last) == ([new], new)


def test_an_event_of_a_removed_session_is_shown_to_nobody_but_an_admin(tmp_path: Path) -> None:
    """The newest event outlives its session: its page is not an error."""
    with Local(RunnerSettings(RunnerPaths.from_root(tmp_path / "a")), f"sqlite:///{tmp_path}/m.db") as local:
        token, secret = local.store.tokens.create("reader", ["sessions:read"])
        session = local.store.sessions.create(owner_token_id=token.id)
        local.store.sessions.set_status(session.id, session.status.CANCELLED)
        while local.store.history.remove_events(session.id):
            pass
        local.store.history.remove_session(session.id)
        (left,) = local.store.events.read()

        async def read() -> tuple[m.EventList, m.EventList]:
            caller = await local.service.authenticate(secret)
            events = local.service.events
            return await events.read(caller, m.ReadEvents()), await events.read(LOCAL, m.ReadEvents())

        of_reader, of_admin = asyncio.run(read())
        assert (of_reader.items, of_reader.next_after) == ([], left.seq)
        assert [item.seq for item in of_admin.items] == [left.seq]
