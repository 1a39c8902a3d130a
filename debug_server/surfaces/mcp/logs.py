"""Logs for a model: followed with progress, digested, searched, and read by offset or from the end."""

from __future__ import annotations

import asyncio
import codecs
import time

from debug_server import messages as m
from debug_server.errors import AccessError
from debug_server.service.digest import Digest, Excerpt, LogDigest
from debug_server.service.followers import TOKEN_INVALID
from debug_server.service.log_patterns import excerpt
from debug_server.surfaces.mcp.calls import Call
from debug_server.surfaces.mcp.log_search import LineSearch
from debug_server.surfaces.mcp.messages import LogText, ReadLogArguments

_BLOCK = 1 << 18  # bytes that are digested at once, in a thread
_PAGE = 1 << 20
_TAIL_BYTES = 1 << 18
_PROGRESS_SECONDS = 1.0
_LAST_STATE_SECONDS = 10.0  # from the end of the log to the end of the command
_SEARCH_SECONDS = 20.0
_LINE_BYTES = 1 << 16  # a longer line is searched in pieces


class _Follower:
    """Reads a log as it is written, for progress and for its digest."""

    def __init__(self, call: Call, command_id: int) -> None:
        self._call = call
        self._command_id = command_id
        self._digest = LogDigest()
        self._unread = bytearray()
        self._working: asyncio.Future[None] | None = None
        self._newest = b""
        self.seen = 0

    async def follow(self) -> None:
        """Follow the log until the command has ended."""
        request = m.FollowLog(command_id=self._command_id)
        async for piece in self._call.service.logs.follow(self._call.caller, request):
            self.seen += len(piece.data)
            self._newest = (self._newest + piece.data)[-1024:]
            self._unread += piece.data
            if len(self._unread) >= _BLOCK:
                block = bytes(self._unread)
                self._unread.clear()
                self._working = asyncio.ensure_future(asyncio.to_thread(self._digest.feed, block))
                # Shielded: the digest must contain this block even if following is cancelled.
                await asyncio.shield(self._working)

    def newest_line(self) -> str:
        """The last line that is not empty."""
        lines = [line for line in self._newest.split(b"\n") if line.strip()]
        return excerpt(lines[-1]) if lines else ""

    async def digest(self) -> Digest:
        """The digest of what was read; nothing is read afterwards."""
        if self._working is not None:
            await self._working
        return await asyncio.to_thread(self._finish)

    def _finish(self) -> Digest:
        self._digest.feed(bytes(self._unread))
        return self._digest.finish()


async def watch(call: Call, command_id: int, seconds: float) -> tuple[m.CommandReply, Digest]:
    """Wait for a command, at most ``seconds``, and digest its log; reports progress."""
    call.service.followers.check_room()
    began = time.monotonic()
    follower = _Follower(call, command_id)
    follow_task = asyncio.create_task(follower.follow())
    token_invalid = False

    def disconnect() -> None:
        nonlocal token_invalid
        token_invalid = True
        follow_task.cancel()

    try:
        with call.service.followers.registered(call.caller, disconnect):
            await call.progress(0.0, f"command {command_id} is running")
            while not follow_task.done() and (left := began + seconds - time.monotonic()) > 0:
                await asyncio.wait({follow_task}, timeout=min(_PROGRESS_SECONDS, left))
                elapsed = time.monotonic() - began
                told = f"command {command_id}: {elapsed:.0f} s, {follower.seen} bytes: {follower.newest_line()}"
                await call.progress(elapsed, told)
    finally:
        follow_task.cancel()
        await asyncio.wait({follow_task})
    if token_invalid:
        raise AccessError(TOKEN_INVALID)
    if follow_task.cancelled():
        command = await call.service.commands.get(call.caller, m.CommandRef(command_id=command_id))
    else:
        follow_task.result()
        request = m.WaitCommand(command_id=command_id, timeout=_LAST_STATE_SECONDS)
        command = await call.service.commands.wait(call.caller, request)
    return command, await follower.digest()


async def digest_so_far(call: Call, command: m.CommandReply) -> Digest:
    """The digest of a log so far; of a very long log, as much as the time allows."""
    digest, offset = LogDigest(), 0
    deadline = time.monotonic() + _SEARCH_SECONDS
    while offset < command.log_bytes and time.monotonic() < deadline:
        page = await _page(call, command.id, offset, min(_PAGE, command.log_bytes - offset))
        if page.next_offset == offset:
            break
        await asyncio.to_thread(digest.feed, _bytes(page))
        offset = page.next_offset
    return await asyncio.to_thread(digest.finish)


async def read_text(call: Call, request: ReadLogArguments) -> LogText:
    """The requested part of a log."""
    call.require("read_log")
    command = await call.service.commands.get(call.caller, m.CommandRef(command_id=request.command_id))
    if request.grep is not None:
        return await _search(call, command, request, LineSearch(request.grep, ignore_case=request.ignore_case))
    if request.tail is not None:
        return await _last_lines(call, command, request.tail)
    page = await _page(call, command.id, request.offset, request.limit)
    text, used = cut_text(_bytes(page), final=page.ended)
    return _answer(command, page, request.offset, request.offset + used, text)


async def _last_lines(call: Call, command: m.CommandReply, count: int) -> LogText:
    start = max(0, command.log_bytes - _TAIL_BYTES)
    page = await _page(call, command.id, start, _TAIL_BYTES)
    data = _bytes(page)
    kept = b"\n".join(data.removesuffix(b"\n").split(b"\n")[-count:])
    offset = start + len(data.removesuffix(b"\n")) - len(kept)
    return _answer(command, page, offset, page.next_offset, kept.decode("utf-8", "replace"))


async def _search(call: Call, command: m.CommandReply, request: ReadLogArguments, search: LineSearch) -> LogText:
    """Search from the offset on, until there are enough matches, the log ends or the time is over."""
    matches: list[Excerpt] = []
    deadline = time.monotonic() + _SEARCH_SECONDS
    offset, part = request.offset, b""  # of a line that continues on the next page
    while True:
        page = await _page(call, command.id, offset + len(part), _PAGE)
        data = part + _bytes(page)
        last = page.next_offset >= command.log_bytes or not page.pieces
        block = data if last else data[: _whole_lines(data)]
        found = await asyncio.to_thread(search.lines, block)
        room = request.max_matches - len(matches)
        matches += [_excerpt(offset, block, start, end) for start, end in found[:room]]
        if len(found) > room or (len(found) == room and not last):
            return _matched(command, page, request.offset, matches[-1].end + 1, matches)
        offset, part = offset + len(block), data[len(block) :]
        if last or time.monotonic() > deadline:
            return _matched(command, page, request.offset, offset, matches)


def _whole_lines(data: bytes) -> int:
    cut = data.rfind(b"\n", max(0, len(data) - _LINE_BYTES)) + 1
    return cut or len(data)


def _excerpt(base: int, block: bytes, start: int, end: int) -> Excerpt:
    return Excerpt(offset=base + start, end=base + end, text=excerpt(block[start:end]))


def _matched(
    command: m.CommandReply, page: m.LogPage, offset: int, next_offset: int, matches: list[Excerpt]
) -> LogText:
    return _answer(command, page, offset, next_offset, "").model_copy(update={"matches": matches})


def _answer(command: m.CommandReply, page: m.LogPage, offset: int, next_offset: int, text: str) -> LogText:
    return LogText(
        command_id=command.id,
        offset=offset,
        next_offset=next_offset,
        log_bytes=max(command.log_bytes, page.next_offset if page.pieces else 0),
        ended=page.ended and next_offset >= page.next_offset,
        text=text,
        matches=[],
    )


async def _page(call: Call, command_id: int, offset: int, limit: int) -> m.LogPage:
    return await call.service.logs.read(call.caller, m.ReadLog(command_id=command_id, offset=offset, limit=limit))


def _bytes(page: m.LogPage) -> bytes:
    return b"".join(piece.data for piece in page.pieces)


def cut_text(data: bytes, *, final: bool) -> tuple[str, int]:
    """The text, and the number of its bytes: an incomplete character at the end is left for the next read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final)
    used = len(data) - len(decoder.getstate()[0])
    if used == 0 and data:
        return data.decode("utf-8", "replace"), len(data)
    return text, used
