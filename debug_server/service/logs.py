"""The verbs of logs: read by offset, as text or as a digest, and followed without polling."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from debug_server import messages as m
from debug_server.errors import NotFoundError
from debug_server.messages import ADMIN
from debug_server.model import Command
from debug_server.runner.log_reader import LogCursor, LogReader, LogSegment
from debug_server.runner.log_watch import watch_log
from debug_server.service import views
from debug_server.service.caller import Caller
from debug_server.service.commands import CommandVerbs
from debug_server.service.digest import LogDigest
from debug_server.service.log_text import SECONDS, log_size, read_text
from debug_server.service.threads import or_exhausted
from debug_server.service.verbs import Shared, Verbs
from debug_server.service.wakeups import wait_for

READ_IN_EVENT_LOOP = 4096  # bytes of a log that are read at once, because a thread would take longer
_PIECE = 1 << 16
_DATA = 1 << 18  # bytes of a log that are read at once, where their streams and times do not matter
_PIECES_PER_ITERATION = 16  # pieces sent before other followers run; a read of a finely written log may return 256
_CACHED_PIECES = 32  # cached pieces for followers of the same log
_ROW_SECONDS = 10.0
_MERGE_SECONDS = 0.25  # small writes within this time are merged for followers that are behind
_TAIL_WINDOW = 1 << 20  # the last bytes of a log, in which the ends of its two streams are searched
_POLL_SECONDS = 5.0  # for filesystems without inotify
_LONG_READINGS = 8  # searches and digests at once: they must not take all threads
_DIGESTED = 1 << 20  # bytes of a log that are digested in one step, and at its end in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTails:
    """The last bytes of stdout and of stderr as text, and the full size of each stream."""

    stdout: str | None = None  # None: there is no log
    stderr: str | None = None
    stdout_bytes: int | None = None  # None: unknown before the command ends
    stderr_bytes: int | None = None
    stdout_truncated: bool = False
    stderr_truncated: bool = False


class OpenLog:
    """A command's log from an offset; reads never wait: ``changed`` is set when there may be more."""

    def __init__(self, command_id: int, path: str, offset: int, changed: Callable[[], object]) -> None:
        self._command_id = command_id
        self._cursor = LogCursor(path, offset)
        self._watch = or_exhausted(watch_log, path)
        self._watch.set_callback(changed)

    def read(self, limit: int) -> list[m.LogPiece]:
        """Up to ``limit`` bytes; empty if there is nothing new."""
        return [_piece(self._command_id, segment) for segment in self._cursor.read(limit)]

    def close(self) -> None:
        """Close its files."""
        self._watch.close()
        self._cursor.close()


class LogVerbs(Verbs):
    """The logs of commands."""

    def __init__(self, shared: Shared, commands: CommandVerbs) -> None:
        super().__init__(shared)
        self._commands = commands
        self._long_readings = asyncio.Semaphore(_LONG_READINGS)

    async def command(self, caller: Caller, request: m.CommandRef) -> m.CommandReply:
        """A command; NotFoundError if its log was removed."""
        command = await self._access.use_command(caller, request.command_id)
        _require_log(command)
        return views.command(command)

    async def read(self, caller: Caller, request: m.ReadLog) -> m.LogPage:
        """Bytes from an offset; past the end it is empty."""
        command = await self._access.use_command(caller, request.command_id)
        _require_log(command)
        return await self._call(_page, command, request)

    async def text(self, caller: Caller, request: m.ReadLogText) -> m.LogText:
        """A part as text: from an offset, the last lines, or the lines that match a pattern."""
        command = await self._access.use_command(caller, request.command_id)
        _require_log(command)
        if (path := _log_of(command)) is None:
            return m.LogText(
                command_id=command.id,
                offset=request.offset,
                next_offset=request.offset,
                log_bytes=0,
                ended=command.status.terminal,
                text="",
                exact=True,
                skipped_bytes=0,
                matches=[],
            )
        async with self._long_readings:
            return await read_text(self._call, command.id, path, request)

    async def digest(self, caller: Caller, request: m.DigestLog) -> m.Digest:
        """The digest of a log so far; of a very long log, of its beginning and its end."""
        command = await self._access.use_command(caller, request.command_id)
        _require_log(command)
        digest = LogDigest()
        if (path := _log_of(command)) is not None:
            deadline, offset, size = time.monotonic() + SECONDS, 0, await self._call(log_size, path)
            async with self._long_readings:
                while fed := await self._call(_digest_part, path, digest, offset, size):
                    offset += fed
                    if time.monotonic() > deadline and (skipped := size - _DIGESTED - offset) > 0:
                        await self._call(digest.skip, skipped)
                        offset += skipped
        return await self._call(digest.finish, request.max_tokens)

    async def follow(self, caller: Caller, request: m.FollowLog) -> AsyncGenerator[m.LogPiece, None]:
        """Yield the log from an offset without gap or repetition until the command has ended."""
        command = await self._wait_for_log(await self._access.use_command(caller, request.command_id))
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
        """The complete log of a command that has ended."""
        while segments := cursor.read(_PIECE):
            for number, segment in enumerate(segments, 1):
                yield _piece(command_id, segment)
                if number % _PIECES_PER_ITERATION == 0 or number == len(segments):
                    await self._shared.fair_wakeups.wait()

    async def _live(self, command: Command, cursor: LogCursor) -> AsyncGenerator[m.LogPiece, None]:
        changed, watch = asyncio.Event(), or_exhausted(watch_log, command.log_path or "")
        timed_out = False
        try:
            watch.set_callback(self._shared.fair_wakeups.waker(changed))
            while True:
                changed.clear()
                # After a timeout the watch may have missed a change: infinity allows no other cursor's result.
                segments = cursor.read(_PIECE, since=math.inf if timed_out else watch.noticed_at)
                for number, segment in enumerate(segments, 1):
                    yield _piece(command.id, segment)
                    if number % _PIECES_PER_ITERATION == 0:
                        await self._shared.fair_wakeups.wait()
                if segments and not cursor.caught_up:
                    await self._shared.fair_wakeups.wait()  # a long history must not delay other followers
                elif cursor.ended and not segments:
                    # The keeper seals the log shortly before the row is terminal: wait for the row.
                    await self._commands.wait_until_terminal(command, time.monotonic() + _ROW_SECONDS)
                    return
                else:
                    timed_out = not await wait_for(changed, _POLL_SECONDS)
        finally:
            watch.close()

    async def _wait_for_log(self, command: Command) -> Command:
        """Wait until the command has a log, or has ended without one."""
        if command.log_path is not None or command.status.terminal:
            return command
        async with self._wakeups.changes_of(("command", command.id)) as woken:
            while True:
                woken.clear()
                command = await self._read(self._store.commands.get, command.id)
                if command.log_path is not None or command.status.terminal:
                    return command
                await woken.wait()

    def open(self, caller: Caller, command: Command, offset: int, changed: asyncio.Event) -> OpenLog:
        """Open the log of a started command for another part of the server, which must close it."""
        caller.require((ADMIN,))
        return OpenLog(command.id, command.log_path or "", offset, self._shared.fair_wakeups.waker(changed))

    async def tails(self, command: Command, limit: int) -> StreamTails:
        """The last ``limit`` bytes of stdout and of stderr, for other parts of the server."""
        size = views.log_bytes(command)
        ended = command.exit
        if size == 0 and ended is not None and not ended.stdout_bytes + ended.stderr_bytes and _log_of(command):
            return StreamTails(stdout="", stderr="", stdout_bytes=0, stderr_bytes=0)
        if size <= READ_IN_EVENT_LOOP:
            return _stream_tails(command, limit)
        return await self._call(_stream_tails, command, limit)

    async def data(self, caller: Caller, command_id: int, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from one offset to another, or to the log's current end, of all streams together."""
        command = await self._access.use_command(caller, command_id)
        _require_log(command)
        if start >= end or (path := _log_of(command)) is None:
            return
        with LogReader(path) as reader:  # not in a thread: a caller that leaves meanwhile would leave it open
            while start < end and (data := await self._call(reader.data, start, min(end, start + _DATA))):
                yield data
                start += len(data)

    async def pieces(self, caller: Caller, command_id: int, start: int, end: int) -> AsyncGenerator[m.LogPiece, None]:
        """A command's log from one offset to another, or to its current end."""
        while start < end:
            limit = min(_PIECE, end - start)
            page = await self.read(caller, m.ReadLog(command_id=command_id, offset=start, limit=limit))
            if not page.pieces:
                return
            for piece in page.pieces:
                yield piece
            start = page.next_offset


def _require_log(command: Command) -> None:
    """NotFoundError if the command had output and its log was removed."""
    ended = command.exit
    if command.log_path is None or ended is None or not ended.stdout_bytes + ended.stderr_bytes:
        return
    if not os.path.exists(command.log_path):  # noqa: PTH110 - faster than Path.exists, and called for every reader
        raise NotFoundError(f"the log of command {command.id} was removed: it was {command.log_path}")


def _log_of(command: Command) -> str | None:
    """The path of a command's log; None before it has one."""
    path = command.log_path
    return path if path is not None and os.path.exists(path) else None  # noqa: PTH110 - as above


def _page(command: Command, request: m.ReadLog) -> m.LogPage:
    if (path := _log_of(command)) is None:
        return m.LogPage(pieces=[], next_offset=request.offset, ended=command.status.terminal)
    with LogReader(path) as reader:
        segments = reader.read(request.offset, request.limit)
        next_offset = segments[-1].end if segments else request.offset
        ended = reader.ended() and next_offset >= reader.size()
    return m.LogPage(pieces=[_piece(command.id, item) for item in segments], next_offset=next_offset, ended=ended)


def _digest_part(path: str, digest: LogDigest, offset: int, end: int) -> int:
    """Digest the next bytes before ``end``, and return their number."""
    with LogReader(path) as reader:
        data = reader.data(offset, min(end, offset + _DIGESTED))
    digest.feed(data)
    return len(data)


def _stream_tails(command: Command, limit: int) -> StreamTails:
    if command.log_path is None:
        return StreamTails()
    try:
        reader = LogReader(command.log_path)
    except (NotFoundError, OSError):
        return StreamTails()
    with reader:
        start = max(0, reader.size() - _TAIL_WINDOW)
        found = {"stdout": bytearray(), "stderr": bytearray(), "system": bytearray()}
        for segment in reader.segments(start):
            found[segment.stream] += segment.data
    record, whole = command.exit, start == 0
    sizes = {
        "stdout": record.stdout_bytes if record is not None else len(found["stdout"]) if whole else None,
        "stderr": record.stderr_bytes if record is not None else len(found["stderr"]) if whole else None,
    }
    return StreamTails(
        stdout=_text_end(found["stdout"], limit),
        stderr=_text_end(found["stderr"], limit),
        stdout_bytes=sizes["stdout"],
        stderr_bytes=sizes["stderr"],
        stdout_truncated=_is_truncated(sizes["stdout"], len(found["stdout"]), limit, whole=whole),
        stderr_truncated=_is_truncated(sizes["stderr"], len(found["stderr"]), limit, whole=whole),
    )


def _is_truncated(size: int | None, read_bytes: int, limit: int, *, whole: bool) -> bool:
    if whole and size is not None and size <= limit:
        return False  # even if a masked secret made the log longer than the stream
    shown = min(limit, read_bytes)
    return size != shown  # also if the size is unknown


def _text_end(data: bytearray, limit: int) -> str:
    end = bytes(data[-limit:])
    if len(end) < len(data):
        end = end.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character that was cut
    return end.decode("utf-8", "replace")


@lru_cache(_CACHED_PIECES)  # followers at the same offset get the same segments
def _piece(command_id: int, segment: LogSegment) -> m.LogPiece:
    return m.LogPiece.model_construct(
        offset=segment.offset,
        stream=segment.stream,
        data=segment.data,
        timestamp=datetime.fromtimestamp(segment.time_ns / 1e9, UTC),
        command_id=command_id,
    )
