"""The verbs for parts of the server itself: runs that events and tasks ask for, and what happens by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from debug_server.engine import QueuedRun
from debug_server.engine.schedules import Planned
from debug_server.model import Command, DueTime, Event, NewEvent
from debug_server.service.caller import ADMIN, Caller
from debug_server.service.session_log import SessionLogVerbs
from debug_server.service.wakeups import ANYTHING


class QueuedRunVerbs(SessionLogVerbs):
    """Not in the table of operations: a run in any directory of the machine is nobody's to ask for from outside."""

    async def queue_together(
        self, caller: Caller, steps: Sequence[QueuedRun | NewEvent], due: DueTime | None = None
    ) -> list[Command | NewEvent] | None:
        """Queue runs, each in a session of its own, and tell a part's events; answers when all are in the store.

        With ``due`` that time is taken with it; None when another process had it and nothing was done.
        """
        caller.require((ADMIN,))
        self._accepting()
        return await self._call(self._engine.queue_together, steps, due)

    async def register_directory(self, caller: Caller, directory: Path, name: str) -> int:
        """The number of the repository in a directory of this machine, registered if it is new."""
        caller.require((ADMIN,))
        return (await self._call(self._sessions.register, str(directory), name=name)).id

    async def command_row(self, caller: Caller, command_id: int) -> Command:
        """A command with what its maker wrote into its metadata."""
        return await self._command(caller, command_id)

    async def events_of(self, caller: Caller, subject: str, after: int, limit: int) -> list[Event]:
        """A part's events by number, as they are stored."""
        caller.require((ADMIN,))
        return await self._read(self._store.events.read, after, limit, subject=subject)

    def changes(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set after each change of anything; clear it before each look."""
        return self._wakeups.of(ANYTHING)

    async def last_event(self, caller: Caller) -> int:
        """The number of the newest event."""
        caller.require((ADMIN,))
        return await self._last_event()

    def declare_schedules(self, caller: Caller, group: str, planned: Mapping[str, Planned]) -> None:
        """The schedules of a part, by names that begin with ``group``."""
        caller.require((ADMIN,))
        self._engine.schedules.declare(group, planned)
