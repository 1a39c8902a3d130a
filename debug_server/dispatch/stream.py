"""The stream of events and of what runners do about them: replayed from a cursor, then live, for many watchers.

The stream stores nothing: the store's events say what happened, in one order for all watchers, and output lines are
read from the logs by offset. A slow watcher delays only itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from debug_server.dispatch.entries import Entry, end_entry, entries_of, needs_log, output_entry
from debug_server.dispatch.log_lines import LineReader, Lines, Offsets
from debug_server.dispatch.runs import SUBJECT
from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.model import Command, Event
from debug_server.service import LOCAL, Service
from debug_server.service.logs import StreamTails
from debug_server.service.wakeups import wait_for

_PAGE = 500
_LOOK_AGAIN_SECONDS = 5.0  # for filesystems that send no change notices
_END_BYTES = 4096  # of each output stream, in the entry of a run's end
_CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,2}))?((?:;[0-9]{1,18}:[0-9]{1,18}:[0-9]{1,18}){0,1000})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the stream: the last stored event that was sent, and offsets in the logs of running commands.

    1234            everything up to event 1234
    1234-1          everything before event 1234, and the first of its several entries
    1234;56:10:20   also the lines of command 56: of stdout before byte 10, of stderr before byte 20
    """

    seq: int = 0
    sent: int = 0  # how many entries of the event ``seq``; 0: all of them
    logs: Mapping[int, Offsets] = field(default_factory=dict)

    def __str__(self) -> str:
        position = f"{self.seq}-{self.sent}" if self.sent else str(self.seq)
        return ";".join([position, *(f"{number}:{out}:{err}" for number, (out, err) in sorted(self.logs.items()))])

    @property
    def after(self) -> int:
        """The last event that need not be read again."""
        return self.seq - 1 if self.sent else self.seq


def parse_cursor(text: str) -> Cursor:
    """The cursor of an entry; an empty text is the beginning."""
    if not text:
        return Cursor()
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"invalid cursor {text[:60]!r}: send the cursor of the last event you received, or none"
        )
    logs = {}
    for part in found[3].split(";")[1:]:
        number, out, err = map(int, part.split(":"))
        logs[number] = (out, err)
    return Cursor(seq=int(found[1]), sent=int(found[2] or 0), logs=logs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFilter:
    """Which entries a watcher asks for, and from where on."""

    repo_name: str = ""  # empty: all
    task_id: str = ""  # empty: all
    event_type: str = ""  # a prefix
    follow: bool = False  # wait for new events instead of ending
    cursor: str = ""
    from_now: bool = False  # without a cursor: only new events

    def matches_record(self, record: dict[str, Any]) -> bool:
        """Whether the repository and the task match."""
        return self.repo_name in ("", record["repo_name"]) and self.task_id in ("", record["task_id"])

    def matches_type(self, entry: Entry) -> bool:
        """Whether the entry's type matches."""
        return entry.event_type.startswith(self.event_type)

    @property
    def wants_output(self) -> bool:
        """Whether the type of output entries matches."""
        return any(kind.startswith(self.event_type) for kind in ("runner.stdout", "runner.stderr"))


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run that has not ended, as far as this watcher has seen."""

    record: dict[str, Any]
    lines: LineReader | None = None


class EventStream:
    """The stream for one watcher; ``entries`` may be called once."""

    def __init__(self, service: Service, stream_filter: StreamFilter) -> None:
        self._service = service
        self._filter = stream_filter
        self._cursor = parse_cursor(stream_filter.cursor)
        self._runs: dict[int, _Run] = {}

    async def entries(self) -> AsyncGenerator[Entry, None]:
        """Everything after the cursor; ends once all seen runs have ended or, if following, with the server."""
        if self._filter.from_now and not self._filter.cursor:
            self._cursor = Cursor(seq=await self._service.events.last(LOCAL))
        async with self._service.events.changes() as woken:
            try:
                await self._reopen_logs(woken)
                while True:
                    woken.clear()
                    before, sent = self._cursor.seq, False
                    async for entry in self._available(woken):
                        sent = True
                        yield entry
                    if sent or self._cursor.seq > before:
                        await asyncio.sleep(0)  # let others run while a long history is sent
                    elif self._service.draining or not (self._filter.follow or self._runs):
                        return
                    else:
                        await wait_for(woken, _LOOK_AGAIN_SECONDS)
            finally:
                for run in self._runs.values():
                    self._close(run)

    async def _reopen_logs(self, woken: asyncio.Event) -> None:
        """Continue in the logs that the cursor names."""
        for number, offsets in self._cursor.logs.items():
            try:
                command = await self._service.commands.row(LOCAL, number)
            except NotFoundError:
                continue
            if command.log_path is not None and SUBJECT in command.metadata and self._filter.wants_output:
                lines = self._open_log(command, offsets, woken)
                self._runs[number] = _Run(record=command.metadata[SUBJECT], lines=lines)

    def _open_log(self, command: Command, offsets: Offsets, woken: asyncio.Event) -> LineReader:
        return LineReader(self._service.logs.open(LOCAL, command, min(offsets), woken), offsets)

    async def _available(self, woken: asyncio.Event) -> AsyncGenerator[Entry, None]:
        """The stored events, then the output lines that are in the logs now."""
        for event in await self._service.events.of_subject(LOCAL, SUBJECT, self._cursor.after, _PAGE):
            async for entry in self._event(event, woken):
                yield entry
        for number, run in list(self._runs.items()):
            if run.lines is not None:
                for lines in run.lines.read():
                    if shown := self._output(number, run, lines):
                        yield shown

    async def _event(self, event: Event, woken: asyncio.Event) -> AsyncGenerator[Entry, None]:
        command = None
        if event.command_id is not None:
            command = await self._service.commands.row(LOCAL, event.command_id)
        record = event.data if command is None else command.metadata[SUBJECT]
        if self._filter.matches_record(record):
            if command is not None:
                for entry in self._track(event, command, record, woken):
                    yield entry
            for entry in self._filtered(event, await self._entries_of(event, command, record)):
                yield entry
        self._cursor = Cursor(seq=event.seq)

    async def _entries_of(self, event: Event, command: Command | None, record: dict[str, Any]) -> list[Entry]:
        if event.kind == "command.finished" and command is not None:
            reads = needs_log(command, record)
            ends = await self._service.logs.tails(command, _END_BYTES) if reads else StreamTails()
            return [end_entry(event, command, record, ends)]
        return entries_of(event, command, record)

    def _track(self, event: Event, command: Command, record: dict[str, Any], woken: asyncio.Event) -> Iterator[Entry]:
        """Follow a run from the queue to its end; its last lines come before the entry of its end."""
        if event.kind == "command.pending":
            self._runs[command.id] = _Run(record=record)
        elif event.kind == "command.started" and self._filter.wants_output and command.log_path is not None:
            self._runs[command.id] = _Run(record=record, lines=self._open_log(command, (0, 0), woken))
        elif event.kind == "command.finished":
            run = self._runs.get(command.id)
            if run is not None and run.lines is not None:
                yield from self._drain(command.id, run, run.lines)
            self._close(self._runs.pop(command.id, None))

    def _drain(self, number: int, run: _Run, reader: LineReader) -> Iterator[Entry]:
        while found := reader.drain():
            for lines in found:
                if entry := self._output(number, run, lines):
                    yield entry

    def _filtered(self, event: Event, entries: list[Entry]) -> Iterator[Entry]:
        skip = self._cursor.sent if self._cursor.seq == event.seq else 0
        for index, entry in enumerate(entries):
            if index >= skip and self._filter.matches_type(entry):
                last = index == len(entries) - 1
                yield self._with_cursor(entry, seq=event.seq, sent=0 if last else index + 1)

    def _output(self, number: int, run: _Run, lines: Lines) -> Entry | None:
        assert run.lines is not None
        run.lines.mark_sent(lines)
        entry = output_entry(run.record, number, lines)
        if not self._filter.matches_type(entry):
            return None
        return self._with_cursor(entry, seq=self._cursor.seq, sent=self._cursor.sent)

    def _with_cursor(self, entry: Entry, *, seq: int, sent: int) -> Entry:
        logs = {number: run.lines.offsets for number, run in self._runs.items() if run.lines is not None}
        return replace(entry, cursor=str(Cursor(seq=seq, sent=sent, logs=logs)))

    @staticmethod
    def _close(run: _Run | None) -> None:
        if run is not None and run.lines is not None:
            run.lines.close()
