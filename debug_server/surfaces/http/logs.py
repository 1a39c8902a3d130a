"""Logs over HTTP: plain bytes with ranges, lines of JSON, server-sent events; each reader has its own cursor."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from debug_server import messages as m
from debug_server.errors import InvalidInputError, RangeNotSatisfiableError
from debug_server.messages import OPERATIONS
from debug_server.service import Caller, Service
from debug_server.surfaces.http.access import identify
from debug_server.surfaces.http.decoding import from_query
from debug_server.surfaces.http.documented_routes import BYTES, NDJSON, SSE
from debug_server.surfaces.http.endpoints import Endpoint
from debug_server.surfaces.http.log_text import Encoding, LogText, Record, line
from debug_server.surfaces.http.refusals import error_response
from debug_server.surfaces.http.streaming import OpenStreams, Stream, with_heartbeats

_RANGE = re.compile(r"bytes=(?:(\d{1,4000})-(\d{1,4000})?|-(\d{1,4000}))")
_LAST_EVENT = "last-event-id"
_END_SECONDS, _POLL_SECONDS = 5.0, 0.1


class LogQuery(m.FollowLog):
    """The offset to start at, and whether to follow."""

    follow: bool = False
    encoding: Encoding = "utf-8"


class SessionLogQuery(m.FollowSession):
    """The same for a session."""

    follow: bool = False
    encoding: Encoding = "utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndpoints:
    """The endpoints of logs and of the event stream."""

    service: Service
    streams: OpenStreams
    heartbeat_seconds: float

    async def _caller(self, request: Request, operation: str) -> Caller:
        caller = await identify(self.service, request)
        caller.require(OPERATIONS[operation].scopes or ())
        return caller

    async def read_bytes(self, request: Request) -> Response:
        """``GET /commands/{id}/log``: the current log or a range; with ``follow`` until the command has ended."""
        caller = await self._caller(request, "read_log")
        query = from_query(request, LogQuery)
        command = await self.service.logs.command(caller, m.CommandRef(command_id=query.command_id))
        headers = {"Accept-Ranges": "bytes", "X-Command-Status": command.status}
        if query.follow:
            pieces = self.service.logs.follow(caller, m.FollowLog(command_id=command.id, offset=query.offset))
            return Stream(bytes_of(pieces), self.streams, media_type=BYTES, headers=headers)
        size = command.log_bytes
        start, end, status = min(query.offset, size), size, 200
        if (asked := request.headers.get("range")) and (found := _range(asked, size)) is not None:
            start, end, status = *found, 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        headers["Content-Length"] = str(end - start)
        body = self.service.logs.data(caller, command.id, start, end)
        return StreamingResponse(body, status, headers, media_type=BYTES)

    async def read_lines(self, request: Request) -> Response:
        """``GET /commands/{id}/log.ndjson``."""
        caller = await self._caller(request, "follow_log")
        query = from_query(request, LogQuery)
        command = await self.service.logs.command(caller, m.CommandRef(command_id=query.command_id))
        text = LogText(_name("message", query.encoding), query.offset, query.encoding)
        if query.follow:
            pieces = self.service.logs.follow(caller, m.FollowLog(command_id=command.id, offset=text.start))
        else:
            pieces = self.service.logs.pieces(caller, command.id, text.start, command.log_bytes)
        return Stream(lines_of(text.records(pieces)), self.streams, media_type=NDJSON, headers={})

    async def read_session_lines(self, request: Request) -> Response:
        """``GET /sessions/{id}/logs``: all of a session's commands."""
        caller = await self._caller(request, "follow_log")
        query = from_query(request, SessionLogQuery)
        await self.service.sessions.get(caller, m.SessionRef(session_id=query.session_id))
        text = LogText(_name("message", query.encoding), query.offset, query.encoding)
        verb = self.service.session_logs.follow if query.follow else self.service.session_logs.read
        pieces = verb(caller, m.FollowSession(session_id=query.session_id, offset=text.start))
        return Stream(lines_of(text.records(pieces)), self.streams, media_type=NDJSON, headers={})

    async def log_events(self, request: Request) -> Response:
        """``GET /commands/{id}/log/events``: server-sent events; each id is the offset to resume from."""
        caller = await self._caller(request, "follow_log")
        query = from_query(request, LogQuery)
        command_id = m.CommandRef(command_id=query.command_id)
        await self.service.logs.command(caller, command_id)
        offset = resume_offset(request, query.offset)
        text = LogText(_name("text", query.encoding), offset, query.encoding)
        pieces = self.service.logs.follow(caller, m.FollowLog(command_id=query.command_id, offset=text.start))
        return self._events(self._log_events(caller, command_id, text.records(pieces)))

    async def _log_events(
        self, caller: Caller, command: m.CommandRef, records: AsyncGenerator[Record, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(records):
            async for record in records:
                yield sse("log", record["next_offset"], json.dumps(record))
        ended = await self._ended(caller, command)
        yield sse("end", ended.log_bytes, ended.model_dump_json(include={"id", "status", "exit_code", "exit_reason"}))

    async def _ended(self, caller: Caller, command: m.CommandRef) -> m.CommandReply:
        """Wait until the row is terminal: shortly after the log ends, or later if the store is unavailable."""
        waiting = m.WaitCommand(command_id=command.command_id, timeout=_END_SECONDS)
        while True:
            found = await self.service.commands.wait(caller, waiting)
            if found.finished_at is not None:
                return found
            await asyncio.sleep(_POLL_SECONDS)  # while the server drains, ``wait`` returns at once

    async def follow_events(self, request: Request) -> Response:
        """``GET /events/stream``: the durable events; each id is the event's number."""
        caller = await self._caller(request, "follow_events")
        query = from_query(request, m.ReadEvents)
        query = query.model_copy(update={"after": resume_offset(request, query.after)})
        return self._events(_facts(self.service.events.follow(caller, query)))

    def _events(self, pieces: AsyncGenerator[bytes, None]) -> Stream:
        stream = with_heartbeats(pieces, self.heartbeat_seconds)
        return Stream(stream, self.streams, media_type=SSE, headers={})

    def routes(self) -> dict[str, Endpoint]:
        """Each route by its name, and its endpoint."""
        return {
            "read_log": _ranged(self.read_bytes),
            "follow_log": self.read_lines,
            "log_events": self.log_events,
            "session_logs": self.read_session_lines,
            "follow_events": self.follow_events,
        }


def _ranged(endpoint: Endpoint) -> Endpoint:
    """The endpoint with the log's size in the response to a range after its end."""

    async def handle(request: Request) -> Response:
        try:
            return await endpoint(request)
        except RangeNotSatisfiableError as error:
            response = error_response(error)
            response.headers["Content-Range"] = f"bytes */{error.size}"
            return response

    return handle


def _range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end of the requested range; None to send everything, as for a header in another format."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        return None
    if match[3] is not None:
        start, end = max(0, size - int(match[3])), size
    else:
        start, end = int(match[1]), min(size, int(match[2]) + 1) if match[2] is not None else size
    if start >= size or start >= end:
        raise RangeNotSatisfiableError(f"the log has {size} bytes and {header!r} starts after them", size=size)
    return start, end


def resume_offset(request: Request, offset: int) -> int:
    """The offset after the event in Last-Event-ID; without the header ``offset``."""
    given = request.headers.get(_LAST_EVENT)
    if given is None:
        return offset
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise InvalidInputError(f"Last-Event-ID {given[:64]!r} must be the id of an event that was received")
    return int(given)


def _name(name: str, encoding: Encoding) -> str:
    return "data" if encoding == "base64" else name


def sse(kind: str, number: int, data: str) -> bytes:
    """One server-sent event."""
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()


async def bytes_of(pieces: AsyncGenerator[m.LogPiece, None]) -> AsyncGenerator[bytes, None]:
    """The bytes of a log."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece.data


async def lines_of(records: AsyncGenerator[Record, None]) -> AsyncGenerator[bytes, None]:
    """Records as lines of JSON."""
    async with aclosing(records):
        async for record in records:
            yield line(record)


async def _facts(events: AsyncGenerator[m.EventReply, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for event in events:
            yield sse(event.kind, event.seq, event.model_dump_json())
