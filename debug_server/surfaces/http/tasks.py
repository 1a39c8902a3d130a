"""Host tasks over HTTP: the part of the server with the routes below ``/tasks``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from debug_server.service import Caller, Service
from debug_server.surfaces.http.access import identify_or_local
from debug_server.surfaces.http.decoding import from_query, json_object
from debug_server.surfaces.http.documented_routes import BYTES, LAST_EVENT, NDJSON, SSE, DocumentedRoute, RouteDoc
from debug_server.surfaces.http.endpoints import KEY_HEADER, Endpoint, encoded
from debug_server.surfaces.http.log_text import LogText, Record
from debug_server.surfaces.http.logs import bytes_of, lines_of, resume_offset, sse
from debug_server.surfaces.http.sockets import follow_records, guarded_socket
from debug_server.surfaces.http.streaming import OpenStreams, Stream, with_heartbeats
from debug_server.tasks.callbacks import Callbacks
from debug_server.tasks.models import RunnerSubmit, RunnerTask, TaskId, TaskList, TaskPage, WaitTask
from debug_server.tasks.tasks import Tasks

_NOTE = "The server's own user needs no token."
_END_SECONDS = 30.0  # a log is complete a moment before its task is over


class TaskLogQuery(TaskId):
    """The offset to start at, and whether to follow."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    follow: bool = False


def _about(name: str, summary: str, request: type[BaseModel], reply: type[BaseModel] = RunnerTask) -> RouteDoc:
    return RouteDoc(
        name=name, tag="tasks", summary=summary, note=_NOTE, request=request, reply=reply, open_to_local=True
    )


def _log_about(name: str, summary: str, kind: str) -> RouteDoc:
    headers = (LAST_EVENT,) if kind == SSE else ()
    return RouteDoc(
        name=name,
        tag="tasks",
        summary=summary,
        note=_NOTE,
        request=TaskLogQuery,
        produces=(kind,),
        headers=headers,
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
        log = "/tasks/{task_id}/log"
        rows: list[tuple[str, str, Endpoint, RouteDoc]] = [
            ("POST", "/tasks/submit", self.submit, _about("submit_task", "Run a task.", RunnerSubmit)),
            ("GET", "/tasks", self.list, _about("list_tasks", "List tasks, oldest first.", TaskPage, TaskList)),
            ("GET", "/tasks/{task_id}", self.get, _about("get_task", "Get a task.", TaskId)),
            (
                "GET",
                "/tasks/{task_id}/wait",
                self.wait,
                _about("wait_task", "Wait until a task has ended or the timeout is over.", WaitTask),
            ),
            ("POST", "/tasks/{task_id}/cancel", self.cancel, _about("cancel_task", "Cancel a task.", TaskId)),
            ("GET", log, self.log, _log_about("read_task_log", "Get a task's output.", BYTES)),
            (
                "GET",
                f"{log}.ndjson",
                self.log_lines,
                _log_about("task_log_lines", "Get a task's output as JSON lines.", NDJSON),
            ),
            (
                "GET",
                f"{log}/events",
                self.log_events,
                _log_about("follow_task_log", "Follow a task's output as server-sent events.", SSE),
            ),
        ]
        return [
            *(DocumentedRoute(method, path, endpoint, about) for method, path, endpoint, about in rows),
            WebSocketRoute(log, guarded_socket(self.log_socket)),
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
        submit = RunnerSubmit.model_validate(await json_object(request), strict=True)
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
        caller, query = await self._caller(request), from_query(request, TaskLogQuery)
        verb = self._tasks.follow if query.follow else self._tasks.stored
        pieces = await verb(caller, TaskId(task_id=query.task_id), query.offset)
        return Stream(bytes_of(pieces), _streams(request), media_type=BYTES, headers={})

    async def log_lines(self, request: Request) -> Response:
        """``GET /tasks/{id}/log.ndjson``."""
        caller, query = await self._caller(request), from_query(request, TaskLogQuery)
        records = await self._records(caller, query, follow=query.follow)
        return Stream(lines_of(records), _streams(request), media_type=NDJSON, headers={})

    async def log_events(self, request: Request) -> Response:
        """``GET /tasks/{id}/log/events``: server-sent events; the last one is the task."""
        caller, query = await self._caller(request), from_query(request, TaskLogQuery)
        query = query.model_copy(update={"offset": resume_offset(request, query.offset)})
        pieces = self._events(caller, query, await self._records(caller, query, follow=True))
        stream = with_heartbeats(pieces, self._heartbeat_seconds)
        return Stream(stream, _streams(request), media_type=SSE, headers={})

    async def log_socket(self, socket: WebSocket) -> None:
        """``WS /tasks/{id}/log``."""
        caller, query = await self._caller(socket), from_query(socket, TaskLogQuery)
        await follow_records(_streams(socket), socket, await self._records(caller, query, follow=True))

    async def _caller(self, connection: HTTPConnection) -> Caller:
        return await identify_or_local(self._service, connection)

    async def _records(self, caller: Caller, query: TaskLogQuery, *, follow: bool) -> AsyncGenerator[Record, None]:
        text = LogText("chunk", query.offset, "utf-8")
        verb = self._tasks.follow if follow else self._tasks.stored
        pieces = await verb(caller, TaskId(task_id=query.task_id), text.start)
        return _named(query.task_id, text.records(pieces))

    async def _events(
        self, caller: Caller, query: TaskLogQuery, records: AsyncGenerator[Record, None]
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
