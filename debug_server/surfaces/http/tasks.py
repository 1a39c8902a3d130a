"""Host tasks over HTTP: the part of the server with the routes below ``/tasks``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from debug_server.messages.task_operations import TASK_OPERATIONS, TaskOperation
from debug_server.messages.tasks import FollowTaskLog, RunnerSubmit, RunnerTask, TaskId, TaskPage, WaitTask
from debug_server.service import Caller, Service
from debug_server.surfaces.http.access import identify_or_local
from debug_server.surfaces.http.decoding import from_body, from_query
from debug_server.surfaces.http.documented_routes import BYTES, JSON, LAST_EVENT, NDJSON, SSE, DocumentedRoute, RouteDoc
from debug_server.surfaces.http.endpoints import KEY_HEADER, Endpoint, encoded
from debug_server.surfaces.http.log_text import LogText, Record
from debug_server.surfaces.http.logs import bytes_of, lines_of, resume_offset, sse
from debug_server.surfaces.http.sockets import follow_records, guarded_socket
from debug_server.surfaces.http.streaming import OpenStreams, Stream, with_heartbeats
from debug_server.tasks.callbacks import Callbacks
from debug_server.tasks.tasks import Tasks

_NOTE = "The server's own user needs no token."
_END_SECONDS = 30.0  # a log is complete a moment before its task is over
_PRODUCES = {"read_task_log": BYTES, "follow_task_log": NDJSON, "task_log_events": SSE}


def _about(operation: TaskOperation) -> RouteDoc:
    kind = _PRODUCES.get(operation.name, JSON)
    return RouteDoc(
        name=operation.name,
        tag="tasks",
        summary=operation.summary,
        note=f"Scopes: {', '.join(operation.scopes or ())}. {_NOTE}",
        request=operation.request,
        reply=operation.reply if kind == JSON else None,
        produces=(kind,),
        headers=(LAST_EVENT,) if kind == SSE else (),
        open_to_local=True,
    )


class TasksPart:
    """Serves tasks and sends their callbacks."""

    name = "tasks"

    def __init__(self, service: Service, tasks: Tasks, *, heartbeat_seconds: float = 15.0) -> None:
        self._service = service
        self._tasks = tasks
        self._heartbeat_seconds = heartbeat_seconds

    def routes(self) -> Sequence[BaseRoute]:
        """Everything below ``/tasks``."""
        endpoints: dict[str, Endpoint] = {
            "submit_task": self.submit,
            "list_tasks": self.list,
            "get_task": self.get,
            "wait_task": self.wait,
            "cancel_task": self.cancel,
            "read_task_log": self.log,
            "follow_task_log": self.log_lines,
            "task_log_events": self.log_events,
        }
        rows = TASK_OPERATIONS.values()
        return [
            *(DocumentedRoute(row.route.method, row.route.path, endpoints[row.name], _about(row)) for row in rows),
            WebSocketRoute(TASK_OPERATIONS["read_task_log"].route.path, guarded_socket(self.log_socket)),
        ]

    def grpc_services(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def running(self) -> AbstractAsyncContextManager[None]:
        """Send callbacks during the block."""
        return Callbacks(self._service, self._tasks).running()

    def drain(self) -> None:
        """Do nothing: the middleware refuses new tasks, and running ones continue under their keepers."""

    async def drained(self) -> None:
        """Return at once."""

    def health(self) -> Mapping[str, Any]:
        """Which executor runs tasks."""
        return {"tasks": {"executor": self._tasks.executor}}

    def readiness(self) -> tuple[str, Mapping[str, Any]]:
        """Always ready: the service has its own checks."""
        return "ok", {}

    def liveness(self) -> tuple[str, Mapping[str, Any]]:
        """Always alive: tasks have no process of their own."""
        return "ok", {}

    async def submit(self, request: Request) -> Response:
        """``POST /tasks/submit``."""
        caller = await self._caller(request)
        submit = await from_body(request, RunnerSubmit)
        return encoded(await self._tasks.submit(caller, submit, request.headers.get(KEY_HEADER)))

    async def get(self, request: Request) -> Response:
        """``GET /tasks/{id}``."""
        return encoded(await self._tasks.get(await self._caller(request), from_query(request, TaskId)))

    async def list(self, request: Request) -> Response:
        """``GET /tasks``."""
        return encoded(await self._tasks.list(await self._caller(request), from_query(request, TaskPage)))

    async def wait(self, request: Request) -> Response:
        """``GET /tasks/{id}/wait``."""
        return encoded(await self._tasks.wait(await self._caller(request), from_query(request, WaitTask)))

    async def cancel(self, request: Request) -> Response:
        """``POST /tasks/{id}/cancel``."""
        caller, task = await self._caller(request), from_query(request, TaskId)
        return encoded(await self._tasks.cancel(caller, task, request.headers.get(KEY_HEADER)))

    async def log(self, request: Request) -> Response:
        """``GET /tasks/{id}/log``: the current log; with ``follow`` until the task is done."""
        caller, query = await self._caller(request), from_query(request, FollowTaskLog)
        verb = self._tasks.follow if query.follow else self._tasks.stored
        pieces = await verb(caller, TaskId(task_id=query.task_id), query.offset)
        return Stream(bytes_of(pieces), _streams(request), media_type=BYTES, headers={})

    async def log_lines(self, request: Request) -> Response:
        """``GET /tasks/{id}/log.ndjson``."""
        caller, query = await self._caller(request), from_query(request, FollowTaskLog)
        records = await self._records(caller, query, follow=query.follow)
        return Stream(lines_of(records), _streams(request), media_type=NDJSON, headers={})

    async def log_events(self, request: Request) -> Response:
        """``GET /tasks/{id}/log/events``: server-sent events; the last one is the task."""
        caller, query = await self._caller(request), from_query(request, FollowTaskLog)
        query = query.model_copy(update={"offset": resume_offset(request, query.offset)})
        pieces = self._events(caller, query, await self._records(caller, query, follow=True))
        stream = with_heartbeats(pieces, self._heartbeat_seconds)
        return Stream(stream, _streams(request), media_type=SSE, headers={})

    async def log_socket(self, socket: WebSocket) -> None:
        """``WS /tasks/{id}/log``."""
        caller, query = await self._caller(socket), from_query(socket, FollowTaskLog)
        await follow_records(_streams(socket), socket, await self._records(caller, query, follow=True))

    async def _caller(self, connection: HTTPConnection) -> Caller:
        return await identify_or_local(self._service, connection)

    async def _records(self, caller: Caller, query: FollowTaskLog, *, follow: bool) -> AsyncGenerator[Record, None]:
        text = LogText("data" if query.encoding == "base64" else "chunk", query.offset, query.encoding)
        verb = self._tasks.follow if follow else self._tasks.stored
        pieces = await verb(caller, TaskId(task_id=query.task_id), text.start)
        return _named(query.task_id, text.records(pieces))

    async def _events(
        self, caller: Caller, query: FollowTaskLog, records: AsyncGenerator[Record, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(records):
            async for record in records:
                yield sse("log", record["next_offset"], json.dumps(record))
        task: RunnerTask = await self._tasks.wait(caller, WaitTask(task_id=query.task_id, timeout=_END_SECONDS))
        yield sse("end", task.log_bytes, task.model_dump_json())


async def _named(task_id: str, records: AsyncGenerator[Record, None]) -> AsyncGenerator[Record, None]:
    async with aclosing(records):
        async for record in records:
            yield {"task_id": task_id, **record}


def _streams(connection: HTTPConnection) -> OpenStreams:
    found: OpenStreams = connection.app.streams
    return found
