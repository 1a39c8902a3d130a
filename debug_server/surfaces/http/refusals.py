"""Error responses over HTTP, from the service's table of errors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route

from debug_server.errors import DebugServerError, InvalidInputError, NotFoundError
from debug_server.messages.routes import VERSIONED
from debug_server.nearest import nearest
from debug_server.service import mapping_of

_RETRY_SECONDS = 1.0
_LONGEST_PATH = 200  # that is compared with others
_FIELD, _NUMBER = re.compile(r"{[^}]*}"), re.compile(r"(?<=/)\d+(?=/|$)")
_PREFIX = re.compile(r"^/(?:api/?)?(?:v\d+/)?")  # of another version, or none
_COMMANDS = "`GET /api/v1/commands?status={}`"
# What the command line calls otherwise than the routes.
_OTHER_NAMES = {"/ps": _COMMANDS.format("active"), "/history": _COMMANDS.format("ended")}
_EXEC = "`POST /api/v1/exec`, or in a session `POST /api/v1/sessions/{session_id}/exec`"
_REASON_BYTES = 123  # what a WebSocket's closing frame can carry


def error_object(error: DebugServerError) -> dict[str, Any]:
    """``{"error": …}`` for one of our errors."""
    content: dict[str, Any] = {"code": error.code, "message": str(error), "retryable": mapping_of(error).retryable}
    if isinstance(error, InvalidInputError) and error.field is not None:
        content["field"] = error.field
    if isinstance(error, InvalidInputError) and error.violations:
        content["violations"] = [{"field": one.field, "reason": one.reason} for one in error.violations]
    if isinstance(error, NotFoundError) and error.what is not None:
        content["what"] = error.what
    return {"error": content}


def error_response(error: DebugServerError) -> Response:
    """The response for one of our errors."""
    status = mapping_of(error).http
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="debug-server"'
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "retry_after", _RETRY_SECONDS))))
    return _json(error_object(error), status, headers)


async def routing_error_response(connection: HTTPConnection, error: Exception) -> Response:
    """The response for an unknown path, or a method that the path does not have."""
    assert isinstance(error, HTTPException)
    path, headers = connection.scope["path"], dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(NotFoundError(f"there is no path {path!r}: {_advice(path, connection.app.routes)}"))
    method = connection.scope["method"]
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods(connection)))
        is_exec = method == "POST" and connection.path_params.get("session_id") == "exec"
        reason = f"use {_EXEC if is_exec else ' or '.join(sorted(_methods(connection) - {'HEAD'}))}"
    else:
        reason = error.detail
    ours = InvalidInputError(f"{method} is not possible on {path!r}: {reason}")
    return _json(error_object(ours), error.status_code, headers)


def _advice(path: str, routes: Iterable[BaseRoute]) -> str:
    """What to do about an unknown path: the most similar one, and where all of them are."""
    known = {_FIELD.sub("{}", route.path): route.path for route in routes if isinstance(route, Route)}
    shape = _NUMBER.sub("{}", _PREFIX.sub("/", path[:_LONGEST_PATH]))
    if shape in _OTHER_NAMES:
        return f"use {_OTHER_NAMES[shape]}; /docs has every path"
    meant = known.get(shape) or nearest(shape, known)
    meant = known.get(meant, meant) if meant else None
    if meant is None:
        return "/docs has every path"
    prefix = VERSIONED if meant in _versioned(routes) else ""
    return f"did you mean {prefix + meant!r}? /docs has every path"


def _versioned(routes: Iterable[BaseRoute]) -> set[str]:
    """The paths that clients can rely on, without their prefix."""
    inner = (mount.routes for mount in routes if isinstance(mount, Mount) and mount.path == VERSIONED)
    return {route.path for found in inner for route in found if isinstance(route, Route)}


def _methods(connection: HTTPConnection) -> set[str]:
    """The methods of all routes of the path: the router names only those of the first."""
    found = (route for route in connection.app.routes if isinstance(route, Route))
    fitting = (route for route in found if route.matches(connection.scope)[0] is not Match.NONE)
    return {method for route in fitting for method in route.methods or ()}


def closing_reason(error: DebugServerError) -> str:
    """The error in the few bytes of a WebSocket's closing frame."""
    return f"{error.code}: {error}".encode()[:_REASON_BYTES].decode("utf-8", "ignore")


def _json(value: dict[str, Any], status: int, headers: dict[str, str]) -> Response:
    return Response(json.dumps(value), status, headers, media_type="application/json")
