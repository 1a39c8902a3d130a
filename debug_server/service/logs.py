"""The verbs of logs: read by offset, followed without polling."""

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

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.model import Command
from debug_server.runner.log_reader import LogCursor, LogReader, LogSegment
from debug_server.runner.log_watch import watch_log
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.threads import or_exhausted
from debug_server.service.verbs import Shared, Verbs
from debug_server.service.wakeups import wait_for

_PIECE = 1 << 16
_AT_A_TURN = 16  # pieces: a read may have 256 of a log that was written in small pieces
_SHARED = 32  # pieces that are kept for others who follow the same log
_ROW_SECONDS = 10.0
_MERGE_SECONDS = 0.25  # small writes that were made within this time travel together to whoever was not there for each
_LOOK_AGAIN_SECONDS = 5.0  # a wake-up is lost only where a filesystem gives no notices


class LogVerbs(Verbs):
    """The logs of commands."""

    def __init__(self, shared: Shared, commands: CommandVerbs) -> None:
        super().__init__(shared)
        self._commands = commands

    async def command(self, caller: Caller, request: m.CommandId) -> m.CommandReply:
        """A command for a reader of its log; NotFoundError when the log is gone."""
        command = await self._access.command_to_use(caller, request.command_id)
        _require_log(command)
        return views.command(command)

    async def read(self, caller: Caller, request: m.ReadLog) -> m.LogPage:
        """Bytes from an offset; past the end it is empty."""
        command = await self._access.command_to_use(caller, request.command_id)
        _require_log(command)
        return await self._call(_page, command, request)

    async def follow(self, caller: Caller, request: m.FollowLog) -> AsyncGenerator[m.LogPiece, None]:
        """History, then live, no gap, no repeat, until the command has ended."""
        command = await self._begun(await self._access.command_to_use(caller, request.command_id))
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
                    await self._shared.turns.wait()

    async def _live(self, command: Command, cursor: LogCursor) -> AsyncGenerator[m.LogPiece, None]:
        changed, watch = asyncio.Event(), or_exhausted(watch_log, command.log_path or "")
        looked_in_vain = False
        try:
            watch.set_callback(self._shared.turns.waker(changed))
            while True:
                changed.clear()
                segments = cursor.read(_PIECE, since=math.inf if looked_in_vain else watch.noticed_at)
                for number, segment in enumerate(segments, 1):
                    yield _piece(command.id, segment)
                    if number % _AT_A_TURN == 0:
                        await self._shared.turns.wait()
                if segments and cursor.caught_up:
                    looked_in_vain = not await wait_for(changed, _LOOK_AGAIN_SECONDS)
                elif segments:
                    await self._shared.turns.wait()  # a long history must not keep everybody else waiting
                elif cursor.ended:
                    # Its keeper closes the log a moment before the row has its end: who followed finds the end there.
                    await self._commands.terminal(command, time.monotonic() + _ROW_SECONDS)
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

    async def pieces(self, caller: Caller, command_id: int, start: int, end: int) -> AsyncGenerator[m.LogPiece, None]:
        """A command's log from one offset to another, or to where it ends now."""
        while start < end:
            limit = min(_PIECE, end - start)
            page = await self.read(caller, m.ReadLog(command_id=command_id, offset=start, limit=limit))
            if not page.pieces:
                return
            for piece in page.pieces:
                yield piece
            start = page.next_offset


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
