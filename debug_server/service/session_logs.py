"""A session's log: the logs of its commands as one, in the order in which they started.

Commands of a session run one at a time, so the offsets in this log are stable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from itertools import takewhile

from debug_server import messages as m
from debug_server.model import Command
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.logs import LogVerbs
from debug_server.service.verbs import Shared, Verbs

_PIECE = 1 << 18


class SessionLogVerbs(Verbs):
    """Reading and following all of a session's logs."""

    def __init__(self, shared: Shared, logs: LogVerbs) -> None:
        super().__init__(shared)
        self._logs = logs

    async def follow(self, caller: Caller, request: m.FollowSession) -> AsyncGenerator[m.LogPiece, None]:
        """Yield the log until every command has ended; waits for the first command of an open session."""
        await self._access.use_session(caller, request.session_id)
        base, passed, seen = 0, 0, set[int]()  # passed: the commands up to this sequence number need not be read again
        async with self._wakeups.changes_of(("session", request.session_id)) as woken:
            while True:
                woken.clear()
                rows = await self._call(self._store.commands.in_session, request.session_id, after=passed)
                begun = sorted((row for row in rows if row.id not in seen and row.log_path is not None), key=_start)
                for row in begun:
                    async with aclosing(self._one(caller, row, request.offset - base)) as pieces:
                        async for piece in pieces:
                            yield piece.model_copy(update={"offset": base + piece.offset})
                    seen.add(row.id)
                    base += views.log_bytes(row)
                if begun:
                    continue
                for row in takewhile(lambda row: row.status.terminal, rows):
                    passed = row.sequence
                    seen.discard(row.id)
                if all(row.status.terminal for row in rows) and (passed or not await self._is_open(request.session_id)):
                    return
                await woken.wait()

    async def read(self, caller: Caller, request: m.FollowSession) -> AsyncGenerator[m.LogPiece, None]:
        """Yield the log up to its current end."""
        await self._access.use_session(caller, request.session_id)
        rows = await self._call(self._store.commands.in_session, request.session_id)
        base = 0
        for row in sorted((row for row in rows if row.log_path is not None), key=_start):
            size = views.log_bytes(row)
            offset = max(0, request.offset - base)
            async with aclosing(self._logs.pieces(caller, row.id, offset, size)) as pieces:
                async for piece in pieces:
                    yield piece.model_copy(update={"offset": base + piece.offset})
            base += size

    async def _one(self, caller: Caller, row: Command, offset: int) -> AsyncGenerator[m.LogPiece, None]:
        if row.status.terminal and offset >= views.log_bytes(row):
            return
        async with aclosing(self._logs.follow(caller, m.FollowLog(command_id=row.id, offset=max(0, offset)))) as pieces:
            async for piece in pieces:
                yield piece

    async def _is_open(self, session_id: int) -> bool:
        return (await self._read(self._store.sessions.get, session_id)).is_open


def _start(row: Command) -> tuple[datetime, int]:
    return (row.started_at or row.finished_at or row.created_at, row.id)
