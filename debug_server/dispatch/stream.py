"""The stream of events and of what runners do about them: replayed from a cursor, then live, for many watchers.

Nothing is kept for it: the store's events say what happened, in one order for everybody, and lines are read from the
logs by offset. A slow watcher costs only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from typing import Any

from debug_server.dispatch.cursor import Cursor, parse_cursor
from debug_server.dispatch.entries import Entry, entries_of, entry_of_lines
from debug_server.dispatch.runs import SUBJECT
from debug_server.dispatch.tail import Lines, Tail
from debug_server.errors import NotFoundError
from debug_server.model import Command, Event
from debug_server.service import LOCAL, Service
from debug_server.service.wakeups import wait_for

_PAGE = 500
_LOOK_AGAIN_SECONDS = 5.0  # where a filesystem gives no notices


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a watcher wants to see."""

    repo_name: str = ""
    task_id: str = ""
    event_type: str = ""  # a prefix
    follow: bool = False  # stay when there is nothing more to tell
    cursor: str = ""
    from_now: bool = False  # without a cursor: only what comes

    def concerns(self, record: dict[str, Any]) -> bool:
        """Whether it is about the right repository and task."""
        return self.repo_name in ("", record["repo_name"]) and self.task_id in ("", record["task_id"])

    def shows(self, entry: Entry) -> bool:
        """Whether it is of the right type."""
        return entry.event_type.startswith(self.event_type)

    @property
    def wants_lines(self) -> bool:
        """Whether output is of the right type."""
        return any(kind.startswith(self.event_type) for kind in ("runner.stdout", "runner.stderr"))


@dataclass(slots=True, kw_only=True)
class _Run:
    """A run that has not ended, as far as this watcher has seen."""

    record: dict[str, Any]
    tail: Tail | None = None


class EventStream:
    """One watcher's way through the events; ``entries`` may be called once."""

    def __init__(self, service: Service, wish: Wish) -> None:
        self._service = service
        self._wish = wish
        self._at = parse_cursor(wish.cursor)
        self._runs: dict[int, _Run] = {}

    async def entries(self) -> AsyncGenerator[Entry, None]:
        """Everything after the cursor; ends when all that was seen has ended, or, when following, with the server."""
        if self._wish.from_now and not self._wish.cursor:
            self._at = Cursor(seq=await self._service.events.last(LOCAL))
        async with self._service.events.changes() as woken:
            try:
                await self._reopen(woken)
                while True:
                    woken.clear()
                    before, told = self._at.seq, False
                    async for entry in self._round(woken):
                        told = True
                        yield entry
                    if told or self._at.seq > before:
                        await asyncio.sleep(0)  # a long history must not keep everybody else waiting
                    elif self._service.draining or not (self._wish.follow or self._runs):
                        return
                    else:
                        await wait_for(woken, _LOOK_AGAIN_SECONDS)
            finally:
                for run in self._runs.values():
                    self._close(run)

    async def _reopen(self, woken: asyncio.Event) -> None:
        """Go on with the logs that the cursor was in the middle of."""
        for number, offsets in self._at.tails.items():
            try:
                command = await self._service.commands.row(LOCAL, number)
            except NotFoundError:
                continue
            if command.log_path is not None and SUBJECT in command.metadata and self._wish.wants_lines:
                self._runs[number] = _Run(record=command.metadata[SUBJECT], tail=Tail(command.log_path, offsets, woken))

    async def _round(self, woken: asyncio.Event) -> AsyncGenerator[Entry, None]:
        """The events that are there, then the lines that are there."""
        for event in await self._service.events.about(LOCAL, SUBJECT, self._at.after, _PAGE):
            async for entry in self._event(event, woken):
                yield entry
        for number, run in list(self._runs.items()):
            if run.tail is not None:
                for lines in run.tail.read():
                    if shown := self._line(number, run, lines):
                        yield shown

    async def _event(self, event: Event, woken: asyncio.Event) -> AsyncGenerator[Entry, None]:
        command = None
        if event.command_id is not None:
            command = await self._service.commands.row(LOCAL, event.command_id)
        record = event.data if command is None else command.metadata[SUBJECT]
        if self._wish.concerns(record):
            if command is not None:
                for entry in self._track(event, command, record, woken):
                    yield entry
            for entry in self._tell(event, entries_of(event, command, record)):
                yield entry
        self._at = Cursor(seq=event.seq)

    def _track(self, event: Event, command: Command, record: dict[str, Any], woken: asyncio.Event) -> Iterator[Entry]:
        """Follow a run from its queueing to its end, whose lines come before the word of it."""
        if event.kind == "command.pending":
            self._runs[command.id] = _Run(record=record)
        elif event.kind == "command.started" and self._wish.wants_lines and command.log_path is not None:
            self._runs[command.id] = _Run(record=record, tail=Tail(command.log_path, (0, 0), woken))
        elif event.kind == "command.finished":
            run = self._runs.get(command.id)
            if run is not None and run.tail is not None:
                yield from self._drain(command.id, run, run.tail)
            self._close(self._runs.pop(command.id, None))

    def _drain(self, number: int, run: _Run, tail: Tail) -> Iterator[Entry]:
        while found := tail.drain():
            for lines in found:
                if entry := self._line(number, run, lines):
                    yield entry

    def _tell(self, event: Event, entries: list[Entry]) -> Iterator[Entry]:
        skip = self._at.told if self._at.seq == event.seq else 0
        for index, entry in enumerate(entries):
            if index >= skip and self._wish.shows(entry):
                last = index == len(entries) - 1
                yield self._placed(entry, seq=event.seq, told=0 if last else index + 1)

    def _line(self, number: int, run: _Run, lines: Lines) -> Entry | None:
        assert run.tail is not None
        run.tail.note(lines)
        entry = entry_of_lines(run.record, number, lines)
        return self._placed(entry, seq=self._at.seq, told=self._at.told) if self._wish.shows(entry) else None

    def _placed(self, entry: Entry, *, seq: int, told: int) -> Entry:
        tails = {number: run.tail.offsets for number, run in self._runs.items() if run.tail is not None}
        return replace(entry, cursor=str(Cursor(seq=seq, told=told, tails=tails)))

    @staticmethod
    def _close(run: _Run | None) -> None:
        if run is not None and run.tail is not None:
            run.tail.close()
