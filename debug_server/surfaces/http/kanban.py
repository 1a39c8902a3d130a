"""Events over HTTP: emitted as JSON, streamed as server-sent events, delivered by signed hooks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from debug_server import messages as m
from debug_server.dispatch.dispatcher import Outcome
from debug_server.dispatch.governor import Governor
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.stream import EventStream, StreamFilter
from debug_server.dispatch.webhooks import event_of, require_signature, verify
from debug_server.messages.faults import validated
from debug_server.surfaces.http.access import identify_or_local
from debug_server.surfaces.http.decoding import from_query, json_object, refuse_query
from debug_server.surfaces.http.documented_routes import LAST_EVENT, SSE, DocumentedRoute, RouteDoc
from debug_server.surfaces.http.endpoints import Endpoint
from debug_server.surfaces.http.streaming import Stream, with_heartbeats
from debug_server.surfaces.http.unauthenticated_bodies import UnauthenticatedBodies

_HEARTBEAT_SECONDS = 15.0


class EmitEvent(m.Request):
    """An event, and for a push the paths that changed."""

    task_id: str
    event_type: str
    repo_name: str
    field: str = ""
    payload: str = ""
    timestamp: str = ""
    paths: list[str] = Field(default_factory=list)


class StreamQuery(m.Request):
    """Which events, from where."""

    repo: str = ""
    task: str = ""
    type: str = ""
    cursor: str = ""
    follow: bool = True
    from_now: bool = False


class HookRef(m.Request):
    """The repository whose push or pull request is reported; the body is the forge's own."""

    model_config = ConfigDict(extra="allow")
    repo: str


class Emitted(m.Reply):
    """What the event started."""

    ok: bool
    message: list[str]
    runners: list[dict[str, Any]]


_LOCAL = "The server's own user needs no token."
_EMIT = RouteDoc(
    name="emit_event",
    tag="events and runners",
    summary="Send an event to the runners.",
    note=_LOCAL,
    request=EmitEvent,
    reply=Emitted,
    status=202,
    open_to_local=True,
)
_STREAM = RouteDoc(
    name="stream_runner_events",
    tag="events and runners",
    summary="Follow the events and what their runners say.",
    note=_LOCAL,
    request=StreamQuery,
    produces=(SSE,),
    headers=(LAST_EVENT,),
    open_to_local=True,
)
_HOOK = RouteDoc(
    name="receive_hook",
    tag="events and runners",
    summary="Receive a push or a pull request from GitHub or Gitea.",
    note="Signed with the secret of dispatch.hook_secret in X-Hub-Signature-256; needs no token.",
    request=HookRef,
    reply=Emitted,
    status=202,
    signed=True,
)


def kanban_routes(governor: Governor) -> list[BaseRoute]:
    """``/kanban/events`` and ``/hooks/{repo}``."""
    return [
        DocumentedRoute("POST", "/kanban/events", _emit(governor), _EMIT),
        DocumentedRoute("GET", "/kanban/events", _stream(governor), _STREAM),
        DocumentedRoute("POST", "/hooks/{repo}", _hook(governor), _HOOK),
    ]


def _emit(governor: Governor) -> Endpoint:
    async def handle(request: Request) -> Response:
        caller = await identify_or_local(governor.service, request)
        caller.require(("commands:write", "sessions:write"))
        refuse_query(request, EmitEvent)
        asked = validated(EmitEvent, await json_object(request))
        event = IssueEvent(**{**asked.model_dump(), "paths": tuple(asked.paths)})
        return _emit_response(await governor.dispatcher.emit(event))

    return handle


def _hook(governor: Governor) -> Endpoint:
    """Hooks need no token: a caller that signs with the secret may report a push."""
    bodies = UnauthenticatedBodies()

    async def handle(request: Request) -> Response:
        signature = request.headers.get("x-hub-signature-256")
        require_signature(governor.hook_secret, signature)
        body = await bodies.read(request)
        verify(governor.hook_secret, body, signature)
        kind = request.headers.get("x-github-event") or request.headers.get("x-gitea-event") or ""
        event = event_of(request.path_params["repo"], kind, body)
        return _emit_response([] if event is None else await governor.dispatcher.emit(event))

    return handle


def _emit_response(outcomes: list[Outcome]) -> Response:
    shown = [dataclasses.asdict(outcome) for outcome in outcomes]
    return JSONResponse({"ok": True, "message": [outcome.line for outcome in outcomes], "runners": shown}, 202)


def _stream(governor: Governor) -> Endpoint:
    async def handle(request: Request) -> Response:
        caller = await identify_or_local(governor.service, request)
        caller.require(("sessions:read",))
        asked = from_query(request, StreamQuery)
        stream_filter = StreamFilter(
            repo_name=asked.repo,
            task_id=asked.task,
            event_type=asked.type,
            follow=asked.follow,
            cursor=request.headers.get("last-event-id") or asked.cursor,
            from_now=asked.from_now,
        )
        pieces = with_heartbeats(_frames(governor.stream(stream_filter)), _HEARTBEAT_SECONDS)
        return Stream(pieces, request.app.streams, media_type="text/event-stream", headers={})

    return handle


async def _frames(stream: EventStream) -> AsyncGenerator[bytes, None]:
    async with aclosing(stream.entries()) as entries:
        async for entry in entries:
            data = json.dumps(dataclasses.asdict(entry))
            yield f"id: {entry.cursor}\nevent: {entry.event_type}\ndata: {data}\n\n".encode()
