"""Error responses over HTTP, from the service's table of errors."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Match, Route

from debug_server.errors import DebugServerError, InvalidInputError, NotFoundError
from debug_server.messages.faults import faults_of
from debug_server.service import mapping_of

_RETRY_SECONDS = 1.0
_REASON_BYTES = 123  # what a WebSocket's closing frame can carry


def error_object(error: DebugServerError, field: str | None = None) -> dict[str, Any]:
    """``{"error": …}`` for one of our errors."""
    field = field or getattr(error, "field", None)
    content = {"code": error.code, "message": str(error), "retryable": mapping_of(error).retryable}
    return {"error": content if field is None else {**content, "field": field}}


def error_response(error: DebugServerError, *, field: str | None = None) -> Response:
    """The response for one of our errors."""
    status = mapping_of(error).http
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="debug-server"'
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "retry_after", _RETRY_SECONDS))))
    return _json(error_object(error, field), status, headers)


def validation_error_response(error: ValidationError) -> Response:
    """The response for an invalid request; it names the first wrong field."""
    first = faults_of(error)[0]
    return error_response(InvalidInputError(first.message), field=first.field)


async def routing_error_response(connection: HTTPConnection, error: Exception) -> Response:
    """The response for an unknown path, or a method that the path does not have."""
    assert isinstance(error, HTTPException)
    path, headers = connection.scope["path"], dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(NotFoundError(f"there is no path {path!r}: see /openapi.json"))
    method = connection.scope["method"]
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(sorted(_methods(connection)))
    ours = InvalidInputError(f"{method} is not possible on {path!r}: {error.detail}")
    return _json(error_object(ours), error.status_code, headers)


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
