"""Reads a part of a log as text: from an offset, the last lines, or the lines that match a pattern.

Each step is short and runs in a thread, so that a long log delays nobody else. When the time is over, the answer has
what was found, and the offset at which the next call continues.
"""

from __future__ import annotations

import base64
import codecs
import time
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Any

from debug_server import messages as m
from debug_server.errors import InvalidInputError
from debug_server.runner.log_reader import LogReader
from debug_server.service.log_grep import LineSearch
from debug_server.service.log_patterns import MAX_LINE, as_shown

SECONDS = 10.0
_BLOCK = 1 << 20  # bytes that one step reads
_STEP_SECONDS = 0.1
_PART = 1 << 13  # bytes that are searched at once, to the end of their last line
_LONG_LINE = 1 << 15  # a longer line may be searched in two pieces
_AROUND = 1 << 14  # bytes before and after a match in which its context is looked for

Step = Callable[..., Awaitable[Any]]


async def read_text(step: Step, command_id: int, path: str, request: m.ReadLogText) -> m.LogText:
    """The requested part of the log at ``path``; each call of ``step`` runs a function in a thread."""
    if request.grep is None:
        return await _Reading(step, command_id, path, request).text()
    if request.encoding == "base64":
        raise InvalidInputError("grep and encoding=base64 do not go together: read the match's offset as base64")
    search = LineSearch(request.grep, ignore_case=request.ignore_case)
    return await _Reading(step, command_id, path, request).matches(search)


class _Reading:
    """One request."""

    def __init__(self, step: Step, command_id: int, path: str, request: m.ReadLogText) -> None:
        self._step = step
        self._command_id = command_id
        self._path = path
        self._request = request
        self._deadline = time.monotonic() + SECONDS

    async def text(self) -> m.LogText:
        """The bytes from the start on."""
        text: m.LogText = await self._step(_text, self._command_id, self._path, self._request, await self._start())
        return text

    async def matches(self, search: LineSearch) -> m.LogText:
        """Search from the start on, until there are enough matches, the log ends or the time is over."""
        found: list[tuple[int, int]] = []
        start = offset = await self._start()
        most, room = self._request.max_matches, self._request.limit
        while True:
            lines, offset, size, sealed = await self._step(_search, self._path, offset, search, most, room)
            found += lines
            most -= len(lines)
            room -= sum(min(end - begin, MAX_LINE) for begin, end in lines)
            if most <= 0 or room <= 0 or offset >= size or time.monotonic() > self._deadline:
                break
        matches, exact = await self._step(_matches, self._path, found, self._request.context)
        return m.LogText(
            command_id=self._command_id,
            offset=start,
            next_offset=offset,
            log_bytes=size,
            ended=sealed and offset >= size,
            text="",
            exact=exact,
            skipped_bytes=0,
            matches=matches,
        )

    async def _start(self) -> int:
        """The requested offset, or that of the last lines; a later one if the time is over."""
        count = self._request.tail
        if count is None:
            return self._request.offset
        end: int = await self._step(log_size, self._path)
        end -= await self._step(_ends_with_newline, self._path, end)
        while end > 0 and time.monotonic() < self._deadline:
            start = max(0, end - _BLOCK)
            found, count = await self._step(_line_start, self._path, start, end, count)
            if found is not None:
                return int(found)
            end = start
        return end


def log_size(path: str) -> int:
    """The size of a log in bytes."""
    with LogReader(path) as reader:
        return reader.size()


def _ends_with_newline(path: str, end: int) -> bool:
    with LogReader(path) as reader:
        return end > 0 and reader.data(end - 1, end) == b"\n"


def _line_start(path: str, start: int, end: int, count: int) -> tuple[int | None, int]:
    """The offset after the last newline but ``count`` of a block; None and how many are missing if it has fewer."""
    with LogReader(path) as reader:
        block = reader.data(start, end)
    if (newlines := block.count(b"\n")) < count:
        return None, count - newlines
    position = len(block)
    for _ in range(count):
        position = block.rfind(b"\n", 0, position)
    return start + position + 1, 0


def _text(command_id: int, path: str, request: m.ReadLogText, start: int) -> m.LogText:
    with LogReader(path) as reader:
        skipped = 0
        if request.tail is not None:
            offset = _last_bytes(reader, start, request.limit)
            skipped, start = offset - start, offset
        data = reader.data(start, start + request.limit)
        sealed = reader.ended()
        size = reader.size()
    if request.encoding == "base64":
        text, used, exact = base64.b64encode(data).decode(), len(data), True
    else:
        text, used = cut_text(data, final=sealed and start + len(data) >= size)
        exact = _is_utf8(data[:used])
    return m.LogText(
        command_id=command_id,
        offset=start,
        next_offset=start + used,
        log_bytes=size,
        ended=sealed and start + used >= size,
        text=text,
        exact=exact,
        skipped_bytes=skipped,
        matches=[],
    )


def _last_bytes(reader: LogReader, start: int, limit: int) -> int:
    """``start``, or an offset at most ``limit`` before the end: at a line if there is one, or at a character."""
    offset = max(start, reader.size() - limit)
    if offset == start:
        return start
    data = reader.data(offset, offset + limit)
    if data[:-1].count(b"\n"):
        return offset + data.index(b"\n") + 1
    return offset + len(data) - len(data.lstrip(bytes(range(0x80, 0xC0))))


def _search(
    path: str, offset: int, search: LineSearch, most: int, room: int
) -> tuple[list[tuple[int, int]], int, int, bool]:
    """The matching lines of one step, where to continue, the log's size, and whether it has ended."""
    began = time.monotonic()
    with LogReader(path) as reader:
        sealed, size = reader.ended(), reader.size()
        block = reader.data(offset, offset + _BLOCK)
    if offset + len(block) < size:
        block = block[: _whole_lines(block)]
    found: list[tuple[int, int]] = []
    position = 0
    while position < len(block):
        part = block[position : _part_end(block, position)]
        for start, end in search.lines(part):
            found.append((offset + position + start, offset + position + end))
            room -= min(end - start, MAX_LINE)
            if len(found) >= most or room <= 0:
                return found, min(found[-1][1] + 1, size), size, sealed
        position += len(part)
        if time.monotonic() - began > _STEP_SECONDS:
            break
    return found, offset + position, size, sealed


def _part_end(block: bytes, position: int) -> int:
    """The end of the lines that are searched at once: few bytes, because a hostile pattern is slow."""
    longest = position + _LONG_LINE
    newline = block.find(b"\n", position + _PART, longest)
    if newline < 0 and longest < len(block):
        newline = block.rfind(b"\n", position, longest)
    return newline + 1 if newline >= 0 else min(len(block), longest)


def _whole_lines(data: bytes) -> int:
    return data.rfind(b"\n", max(0, len(data) - _LONG_LINE)) + 1 or len(data)


def _matches(path: str, found: list[tuple[int, int]], context: int) -> tuple[list[m.LogMatch], bool]:
    """The lines with their context, and whether all bytes are UTF-8. No line appears twice."""
    matches, exact, shown = [], True, 0
    with LogReader(path) as reader:
        for (start, end), following in zip_longest(found, found[1:]):
            before = _lines(reader, max(shown, start - _AROUND), start)[-context:] if context else []
            later = end + 1 + _AROUND if following is None else min(following[0], end + 1 + _AROUND)
            after = _lines(reader, end + 1, later)[:context]
            shown = end + 1 + sum(len(line) + 1 for line in after)
            line = reader.data(start, min(end, start + MAX_LINE))
            exact = exact and all(map(_is_utf8, (line, *before, *after)))
            text = as_shown(line) + ("…" if end - start > MAX_LINE else "")
            shown_before, shown_after = [as_shown(item) for item in before], [as_shown(item) for item in after]
            matches.append(m.LogMatch(offset=start, end=end, text=text, before=shown_before, after=shown_after))
    return matches, exact


def _lines(reader: LogReader, start: int, end: int) -> list[bytes]:
    """The lines between two offsets, without one that is cut at the end."""
    lines = reader.data(start, end).split(b"\n") if start < end else [b""]
    if not lines[-1] or end < reader.size():
        lines.pop()
    return lines


def cut_text(data: bytes, *, final: bool) -> tuple[str, int]:
    """The text, and the number of its bytes: an incomplete character at the end is left for the next read."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final)
    used = len(data) - len(decoder.getstate()[0])
    if used == 0 and data:
        return data.decode("utf-8", "replace"), len(data)
    return text, used


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
