"""The endpoints of the operations: decode, call the service, encode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from debug_server import messages as m
from debug_server.errors import DebugServerError
from debug_server.messages import OPERATIONS, ServiceOperation
from debug_server.messages.faults import validated
from debug_server.service import Service
from debug_server.surfaces.http.access import identify
from debug_server.surfaces.http.decoding import from_body, from_query, json_object
from debug_server.surfaces.http.refusals import error_response

Endpoint = Callable[[Request], Awaitable[Response]]
KEY_HEADER = "idempotency-key"
PATCH_TYPE = "text/x-patch"


def with_error_responses(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its errors converted to responses."""

    async def handle(request: Request) -> Response:
        try:
            return await endpoint(request)
        except DebugServerError as error:
            return error_response(error)

    return handle


def encoded(reply: m.Reply, status: int = 200) -> Response:
    """A reply as JSON."""
    return Response(reply.model_dump_json(), status, media_type="application/json")


def operation_endpoint(service: Service, operation: ServiceOperation) -> Endpoint:
    """The endpoint of an operation without special behaviour."""

    async def handle(request: Request) -> Response:
        caller = await identify(service, request)
        caller.require(operation.scopes or ())
        if operation.route.method == "POST":
            message = await from_body(request, operation.request)
        else:
            message = from_query(request, operation.request)
        reply = await service.perform(caller, operation, message, request.headers.get(KEY_HEADER))
        return encoded(reply, operation.route.status)

    return handle


class WaitQuery(m.Request):
    """How long to wait for a run."""

    wait: float = Field(default=0.0, ge=0, le=3600)


def start_run_endpoint(service: Service) -> Endpoint:
    """``POST /runs``; with ``?wait=seconds`` it answers when the command has ended or the time is over."""
    operation = OPERATIONS["start_run"]

    async def handle(request: Request) -> Response:
        caller = await identify(service, request)
        caller.require(operation.scopes or ())
        query = from_query(request, WaitQuery)
        message = validated(m.StartRun, await json_object(request), strict=True)
        reply = await service.perform(caller, operation, message, request.headers.get(KEY_HEADER))
        assert isinstance(reply, m.RunReply)
        if query.wait:
            waiting = m.WaitCommand(command_id=reply.command.id, timeout=query.wait)
            command = await service.commands.wait(caller, waiting)
            session = await service.sessions.get(caller, m.SessionRef(session_id=reply.session.id))
            reply = m.RunReply(session=session, command=command)
        return encoded(reply, operation.route.status)

    return handle


def session_diff(service: Service) -> Endpoint:
    """``GET /sessions/{id}/diff``: JSON, or the exact bytes if ``Accept`` has ``text/x-patch``."""
    operation = OPERATIONS["diff_session"]

    async def handle(request: Request) -> Response:
        caller = await identify(service, request)
        caller.require(operation.scopes or ())
        message = from_query(request, m.SessionRef)
        if PATCH_TYPE in request.headers.get("accept", ""):
            return Response(await service.sessions.diff_bytes(caller, message), media_type=PATCH_TYPE)
        return encoded(await service.sessions.diff(caller, message))

    return handle


def artifact_file(service: Service) -> Endpoint:
    """``GET /sessions/{id}/artifacts/{aid}``: the file, or a range of it."""
    operation = OPERATIONS["get_artifact"]

    async def handle(request: Request) -> Response:
        caller = await identify(service, request)
        caller.require(operation.scopes or ())
        message = from_query(request, m.ArtifactRef)
        about = await service.artifacts.get(caller, message)
        path = await service.artifacts.path(caller, message)
        # A browser must not show an artifact as a page of this server.
        headers = {"X-Content-Type-Options": "nosniff"}
        kind = about.content_type or "application/octet-stream"
        return FileResponse(path, media_type=kind, filename=about.name.rpartition("/")[2], headers=headers)

    return handle
