"""The verbs of logs, artifacts and events: read by cursor, followed without polling."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from debug_server.errors import NotFoundError
from debug_server.model import Artifact, Command, Event
from debug_server.runner.log_reader import LogCursor, LogReader, LogSegment
from debug_server.runner.log_watch import watch_log
from debug_server.service import messages as m
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.threads import or_exhausted
from debug_server.service.wakeups import ANYTHING, Subject, wait_for

_PIECE = 1 << 16
_AT_A_TURN = 16  # pieces: a read may have 256 of a log that was written in small pieces
_SHARED = 32  # pieces that are kept for others who follow the same log
_ROW_SECONDS = 10.0
_MERGE_SECONDS = 0.25  # small writes that were made within this time travel together to whoever was not there for each
_LOOK_AGAIN_SECONDS = 5.0  # a wake-up is lost only where a filesystem gives no notices


class LogVerbs(CommandVerbs):
    """Logs, artifacts, events."""

    async def get_logged(self, caller: Caller, request: m.CommandId) -> m.CommandReply:
        """A command for a reader of its log; NotFoundError when the log is gone."""
        command = await self._command_to_use(caller, request.command_id)
        _require_log(command)
        return views.command(command)

    async def read_log(self, caller: Caller, request: m.ReadLog) -> m.LogPage:
        """Bytes from an offset; past the end it is empty."""
        command = await self._command_to_use(caller, request.command_id)
        _require_log(command)
        return await self._call(_page, command, request)

    async def follow_log(self, caller: Caller, request: m.FollowLog) -> AsyncGenerator[m.LogPiece, None]:
        """History, then live, no gap, no repeat, until the command has ended."""
        command = await self._begun(await self._command_to_use(caller, request.command_id))
        if command.log_path is None:
            return
        _require_log(command)
        ended = command.status.terminal
        cursor = LogCursor(command.log_path, request.offset, merge_seconds=0.0 if ended else _MERGE_SECONDS)
        follow = self._history(command.id, cursor) if ended else self._live(command, cursor)
        try:
            async with aclosing(follow):
                async for piece in follow:
                    yield piece
        finally:
            cursor.close()

    async def _history(self, command_id: int, cursor: LogCursor) -> AsyncGenerator[m.LogPiece, None]:
        """The log of a command that has ended: all of it is there."""
        while segments := cursor.read(_PIECE):
            for number, segment in enumerate(segments, 1):
                yield _piece(command_id, segment)
                if number % _AT_A_TURN == 0 or number == len(segments):
                    await self._turns.wait()

    async def _live(self, command: Command, cursor: LogCursor) -> AsyncGenerator[m.LogPiece, None]:
        changed, watch = asyncio.Event(), or_exhausted(watch_log, command.log_path or "")
        looked_in_vain = False
        try:
            watch.set_callback(self._turns.waker(changed))
            while True:
                changed.clear()
                segments = cursor.read(_PIECE, since=math.inf if looked_in_vain else watch.noticed_at)
                for number, segment in enumerate(segments, 1):
                    yield _piece(command.id, segment)
                    if number % _AT_A_TURN == 0:
                        await self._turns.wait()
                if segments and cursor.caught_up:
                    looked_in_vain = not await wait_for(changed, _LOOK_AGAIN_SECONDS)
                elif segments:
                    await self._turns.wait()  # a long history must not keep everybody else waiting
                elif cursor.ended:
                    # Its keeper closes the log a moment before the row has its end: who followed finds the end there.
                    await self._terminal(command, time.monotonic() + _ROW_SECONDS)
                    return
                else:
                    looked_in_vain = not await wait_for(changed, _LOOK_AGAIN_SECONDS)
        finally:
            watch.close()

    async def _begun(self, command: Command) -> Command:
        """The command once it has a log, or has ended without one."""
        if command.log_path is not None or command.status.terminal:
            return command
        async with self._wakeups.of(("command", command.id)) as woken:
            while True:
                woken.clear()
                command = await self._read(self._store.commands.get, command.id)
                if command.log_path is not None or command.status.terminal:
                    return command
                await woken.wait()

    async def list_artifacts(self, caller: Caller, request: m.SessionPage) -> m.ArtifactList:
        """A session's artifacts."""
        session = await self._session_to_use(caller, request.session_id)
        rows = await self._call(
            self._store.artifacts.in_session, session.id, after=request.after, limit=request.limit + 1
        )
        rows, following = views.one_page(rows, request.limit, lambda row: row.id)
        return m.ArtifactList(items=[views.artifact(row) for row in rows], next_after=following)

    async def get_artifact(self, caller: Caller, request: m.ArtifactId) -> m.ArtifactReply:
        """One artifact."""
        return views.artifact((await self._artifact(caller, request))[0])

    async def artifact_path(self, caller: Caller, request: m.ArtifactId) -> Path:
        """The file of an artifact, for surfaces that can send files; NotFoundError when it is gone."""
        return (await self._artifact(caller, request))[1]

    async def _artifact(self, caller: Caller, request: m.ArtifactId) -> tuple[Artifact, Path]:
        session = await self._session_to_use(caller, request.session_id)
        row = await self._call(self._store.artifacts.get, request.artifact_id)
        if row.session_id != session.id:
            raise NotFoundError(f"session {session.id} has no artifact {request.artifact_id}")
        return row, await self._call(_file, row)

    async def read_events(self, caller: Caller, request: m.ReadEvents) -> m.EventList:
        """Events after a cursor that the caller may see."""
        rows = await self._call(self._events, request)
        visible = [row for row in rows if await self._sees(caller, row)]
        following = rows[-1].seq if rows else request.after
        return m.EventList(items=[views.event(row) for row in visible], next_after=following)

    def _events(self, request: m.ReadEvents) -> list[Event]:
        return self._store.events.read(
            request.after,
            request.limit,
            kind=request.kind,
            session_id=request.session_id,
            command_id=request.command_id,
        )

    async def follow_events(self, caller: Caller, request: m.ReadEvents) -> AsyncGenerator[m.EventReply, None]:
        """History, then live; ends only when the caller leaves or the server does."""
        async with self._wakeups.of(_subject(request)) as woken:
            while not self.draining:
                woken.clear()
                page = await self.read_events(caller, request)
                for item in page.items:
                    yield item
                moved = page.next_after > request.after
                request = request.model_copy(update={"after": page.next_after})
                if not moved:
                    await woken.wait()

    async def _sees(self, caller: Caller, event: Event) -> bool:
        if caller.is_admin:
            return True
        if event.session_id is None:
            return False
        return await self._may_see(caller, event.session_id)


def _subject(request: m.ReadEvents) -> Subject:
    if request.command_id is not None:
        return ("command", request.command_id)
    return ANYTHING if request.session_id is None else ("session", request.session_id)


def _file(row: Artifact) -> Path:
    path = Path(row.path)
    if not path.is_file():
        raise NotFoundError(f"the file of artifact {row.id} is gone")
    return path


def _require_log(command: Command) -> None:
    """NotFoundError when it said something and that is not here."""
    ended = command.exit
    if command.log_path is None or ended is None or not ended.stdout_bytes + ended.stderr_bytes:
        return
    if not os.path.exists(command.log_path):  # noqa: PTH110 - for every reader of every log
        raise NotFoundError(f"the log of command {command.id} is not here any more: it was {command.log_path}")


def _page(command: Command, request: m.ReadLog) -> m.LogPage:
    if command.log_path is None or not Path(command.log_path).exists():
        return m.LogPage(pieces=[], next_offset=request.offset, ended=command.status.terminal)
    with LogReader(command.log_path) as reader:
        segments = reader.read(request.offset, request.limit)
        following = segments[-1].end if segments else request.offset
        ended = reader.ended() and following >= reader.size()
    return m.LogPage(pieces=[_piece(command.id, item) for item in segments], next_offset=following, ended=ended)


@lru_cache(_SHARED)  # everybody who follows a log at the same place is given the same segments
def _piece(command_id: int, segment: LogSegment) -> m.LogPiece:
    return m.LogPiece.model_construct(
        offset=segment.offset,
        stream=segment.stream,
        data=segment.data,
        timestamp=datetime.fromtimestamp(segment.time_ns / 1e9, UTC),
        command_id=command_id,
    )
