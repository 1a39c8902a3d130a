"""The errors of the API: one table of codes, in the form that OpenAI clients expect."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from debug_server.errors import (
    DebugServerError,
    UnavailableError,
    WorkerError,
    WorkerNotReadyError,
)
from debug_server.workers import LivenessReason, restart_advice


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """Status, type and retry rule of a code."""

    status: int
    type: str
    retryable: bool = False


_UNAVAILABLE = ErrorKind(status=503, type="backend_unavailable", retryable=True)
_TIMEOUT = ErrorKind(status=504, type="timeout_error", retryable=True)
_INVALID = ErrorKind(status=400, type="invalid_request_error")

CODES: Mapping[str, ErrorKind] = {
    "worker_not_ready": _UNAVAILABLE,
    "worker_unavailable": _UNAVAILABLE,
    "worker_exited": _UNAVAILABLE,
    "handshake_timeout": _UNAVAILABLE,
    "handshake_failed": _UNAVAILABLE,
    "transport_destroyed": _UNAVAILABLE,
    "app_server_disabled": ErrorKind(status=503, type="backend_unavailable"),
    "maintenance_mode": _UNAVAILABLE,
    "worker_request_timeout": _TIMEOUT,
    "request_timeout": _TIMEOUT,
    "idle_timeout": ErrorKind(status=504, type="timeout_error"),
    "worker_busy": ErrorKind(status=429, type="rate_limit_error", retryable=True),
    "concurrency_exceeded": ErrorKind(status=429, type="rate_limit_error"),
    "rate_limited": ErrorKind(status=429, type="rate_limit_error"),
    "request_aborted": ErrorKind(status=499, type="request_cancelled"),
    "worker_error": ErrorKind(status=500, type="server_error"),
    "internal_error": ErrorKind(status=500, type="server_error"),
    "invalid_api_key": ErrorKind(status=401, type="authentication_error"),
    "forbidden": ErrorKind(status=403, type="permission_error"),
    "model_not_found": ErrorKind(status=404, type="invalid_request_error"),
    "not_found": ErrorKind(status=404, type="invalid_request_error"),
    "method_not_allowed": ErrorKind(status=405, type="invalid_request_error"),
    "context_length_exceeded": ErrorKind(status=403, type="tokens_exceeded_error"),
    "invalid_request_error": _INVALID,
    "invalid_json": _INVALID,
    "request_entity_too_large": ErrorKind(status=413, type="invalid_request_error"),
}
_RETRY_SECONDS = 1.0
_SHOWN = 80
_UNION_BRANCH = re.compile(r"str$|literal\[|list\[|dict\[|function-|[A-Z]")  # pydantic's names of union members


class ApiError(Exception):
    """Ends a request with one of the codes."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        worker_status: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
        retryable: bool = True,
    ) -> None:
        """``retryable=False`` marks this error as final although its code is retryable."""
        super().__init__(message)
        self.code = code
        self.kind = CODES[code] if retryable else replace(CODES[code], retryable=False)
        self.param = param
        self.retry_after = retry_after
        self.worker_status = worker_status
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The JSON object, for a response body or an event of a stream."""
        fields: dict[str, Any] = {"message": str(self), "type": self.kind.type, "code": self.code}
        if self.param is not None:
            fields["param"] = self.param
        if self.kind.retryable:
            fields["retryable"] = True
        if self.details:
            fields["details"] = dict(self.details)
        found: dict[str, Any] = {"error": fields}
        if self.worker_status is not None:
            found["worker_status"] = dict(self.worker_status)
        return found

    def response(self) -> Response:
        """The HTTP response."""
        headers = {}
        if self.kind.status == 429 or self.kind.retryable:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after or _RETRY_SECONDS)))
        elif CODES[self.code].retryable:
            headers["X-Should-Retry"] = "false"  # the official client would retry this status
        if self.kind.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="debug-server"'
        return JSONResponse(self.to_json(), self.kind.status, headers)


def api_error_for(error: Exception) -> ApiError:
    """The API error for an exception."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, UnavailableError):
        return _unavailable(error)
    if isinstance(error, WorkerError):
        return _worker_failed(error)
    if isinstance(error, DebugServerError):
        return ApiError("worker_error", str(error))
    return ApiError("internal_error", "internal error: the server's log has details under the request id")


def _unavailable(error: UnavailableError) -> ApiError:
    code = error.code if error.code in CODES else "worker_unavailable"
    status = error.status if isinstance(error, WorkerNotReadyError) else None
    if status and status["health"]["liveness"]["reason"] == LivenessReason.RESTART_LIMIT_EXCEEDED:
        return ApiError(code, restart_advice(status["name"]), worker_status=status, retryable=False)
    return ApiError(code, str(error), retry_after=error.retry_after, worker_status=status)


def _invalid(error: ValidationError) -> ApiError:
    # Of the errors of a union the deepest one is the most specific.
    fault = max(error.errors(include_url=False, include_context=False), key=lambda item: len(item["loc"]))
    where = [str(part) for part in fault["loc"] if not _UNION_BRANCH.match(str(part))]
    param = ".".join(where) or "body"
    shown = repr(fault["input"])
    value = f", not {shown}" if isinstance(fault["input"], str | int | float) and len(shown) <= _SHOWN else ""
    text = fault["msg"].removeprefix("Value error, ")
    return ApiError("invalid_request_error", f"{param}: {text[:1].lower()}{text[1:]}{value}", param=param)


# codexErrorInfo in lower case -> code
_BY_INFO = {
    "contextwindowexceeded": "context_length_exceeded",
    "sessionbudgetexceeded": "context_length_exceeded",
    "usagelimitexceeded": "rate_limited",
    "ratelimitexceeded": "rate_limited",
    "unauthorized": "invalid_api_key",
    "badrequest": "invalid_request_error",
    "modelnotfound": "model_not_found",
    "serveroverloaded": "worker_busy",
}
_BY_STATUS = {
    401: "invalid_api_key",
    404: "model_not_found",
    429: "rate_limited",
}  # HTTP status of the model's provider


def _worker_failed(error: WorkerError) -> ApiError:
    worker_data = error.data if isinstance(error.data, Mapping) else {}
    info = worker_data.get("codexErrorInfo")
    status = None
    if isinstance(info, Mapping) and info:
        info, inner = next(iter(info.items()))
        status = inner.get("httpStatusCode") if isinstance(inner, Mapping) else None
    code = _BY_INFO.get(str(info).lower()) or _BY_STATUS.get(status or 0, "worker_error")
    data = worker_data.get("data")
    details = (
        {name: data[name] for name in ("auth_url", "login_id") if name in data} if isinstance(data, Mapping) else {}
    )
    return ApiError(code, str(error), details=details)
