"""Logs and debuggers over WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from starlette.status import WS_1006_ABNORMAL_CLOSURE
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from debug_server import messages as m
from debug_server.errors import AccessError, DebugServerError, NotFoundError, StoreUnavailableError
from debug_server.messages import OPERATIONS, ROUTES
from debug_server.service import Caller, Service
from debug_server.service.followers import TOKEN_INVALID
from debug_server.surfaces.http.access import identify
from debug_server.surfaces.http.decoding import from_query
from debug_server.surfaces.http.log_text import Encoding, LogText, Record, encoded
from debug_server.surfaces.http.refusals import closing_reason, error_object
from debug_server.surfaces.http.streaming import Ending, OpenStreams

ENDED, SERVICE_RESTART, REFUSED, FAILED = 1000, 1012, 1008, 1011

Socket = Callable[[WebSocket], Awaitable[None]]


class CommandLogQuery(m.FollowLog):
    """The offset to start at, and the encoding of the data."""

    encoding: Encoding = "utf-8"


class SessionLogsQuery(m.FollowSession):
    """The same for a session."""

    encoding: Encoding = "utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketEndpoints:
    """The WebSocket endpoints; each refusal is a close with 1008 and the error's code."""

    service: Service
    streams: OpenStreams

    def routes(self) -> dict[str, Socket]:
        """Each path and its endpoint."""
        return {
            ROUTES["read_log"].path: guarded_socket(self.command_log),
            ROUTES["session_logs"].path: guarded_socket(self.session_logs),
            ROUTES["debug_session"].path: guarded_socket(self.debug),
        }

    async def command_log(self, socket: WebSocket) -> None:
        """``WS /commands/{id}/log``."""
        caller = await self._caller(socket, "follow_log")
        query = from_query(socket, CommandLogQuery)
        await self.service.logs.command(caller, m.CommandRef(command_id=query.command_id))
        text = LogText(_name(query.encoding), query.offset, query.encoding)
        pieces = self.service.logs.follow(caller, m.FollowLog(command_id=query.command_id, offset=text.start))
        await follow_records(self.streams, socket, text.records(pieces))

    async def session_logs(self, socket: WebSocket) -> None:
        """``WS /sessions/{id}/logs``: all of a session's commands as one log."""
        caller = await self._caller(socket, "follow_log")
        query = from_query(socket, SessionLogsQuery)
        await self.service.sessions.get(caller, m.SessionRef(session_id=query.session_id))
        text = LogText(_name(query.encoding), query.offset, query.encoding)
        following = m.FollowSession(session_id=query.session_id, offset=text.start)
        await follow_records(self.streams, socket, text.records(self.service.session_logs.follow(caller, following)))

    async def debug(self, socket: WebSocket) -> None:
        """``WS /sessions/{id}/debug``: sends the error and closes with 1011, because there is no debugger yet."""
        caller = await self._caller(socket, "debug_session")
        query = from_query(socket, m.SessionRef)
        await self.service.sessions.get(caller, query)
        try:
            await self.service.sessions.debug(caller, m.DebugAction(session_id=query.session_id))
        except (NotFoundError, AccessError):
            raise
        except DebugServerError as error:
            await socket.send_text(json.dumps(error_object(error)))
            await socket.close(FAILED, closing_reason(error))

    async def _caller(self, socket: WebSocket, operation: str) -> Caller:
        caller = await identify(self.service, socket)
        caller.require(OPERATIONS[operation].scopes or ())
        return caller


async def follow_records(streams: OpenStreams, socket: WebSocket, records: AsyncGenerator[Record, None]) -> None:
    """Send records at the client's pace until they end, the client disconnects or the server shuts down."""
    streams.check_room()
    sender = asyncio.ensure_future(_send(socket, records))
    try:
        ending = await streams.run(socket.scope, sender, asyncio.ensure_future(_departure(socket)))
    except StoreUnavailableError as error:
        await socket.close(SERVICE_RESTART, closing_reason(error))
        return
    if ending is Ending.TOKEN_INVALID:
        raise AccessError(TOKEN_INVALID)
    if socket.client_state is WebSocketState.CONNECTED:
        await socket.close(ENDED if ending is Ending.DONE else SERVICE_RESTART)


def guarded_socket(endpoint: Socket) -> Socket:
    """The endpoint, its refusals turned into a close with 1008."""

    async def handle(socket: WebSocket) -> None:
        try:
            await socket.accept()  # a close before it would be an HTTP status without a reason
        except OSError as error:  # the connection is gone; for later messages Starlette turns this into the same
            raise WebSocketDisconnect(WS_1006_ABNORMAL_CLOSURE) from error
        try:
            await endpoint(socket)
        except DebugServerError as error:
            await socket.close(REFUSED, closing_reason(error))

    return handle


def _name(encoding: Encoding) -> str:
    return "data" if encoding == "base64" else "text"


async def _send(socket: WebSocket, records: AsyncGenerator[Record, None]) -> None:
    async with aclosing(records):
        async for record in records:
            await socket.send_text(encoded(record))


async def _departure(socket: WebSocket) -> None:
    """Wait until the client disconnects; its messages are ignored."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
