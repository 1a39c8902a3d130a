"""How a request is refused: one table of codes, and the shape that clients of the OpenAI API know."""

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
from debug_server.workers.state import LivenessReason
from debug_server.workers.status import restart_advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What belongs to a code."""

    status: int
    type: str
    retryable: bool = False


_AWAY = Kind(status=503, type="backend_unavailable", retryable=True)
_LATE = Kind(status=504, type="timeout_error", retryable=True)
_INVALID = Kind(status=400, type="invalid_request_error")

CODES: Mapping[str, Kind] = {
    "worker_not_ready": _AWAY,
    "worker_unavailable": _AWAY,
    "worker_exited": _AWAY,
    "handshake_timeout": _AWAY,
    "handshake_failed": _AWAY,
    "transport_destroyed": _AWAY,
    "app_server_disabled": Kind(status=503, type="backend_unavailable"),
    "maintenance_mode": _AWAY,
    "worker_request_timeout": _LATE,
    "request_timeout": _LATE,
    "idle_timeout": Kind(status=504, type="timeout_error"),
    "worker_busy": Kind(status=429, type="rate_limit_error", retryable=True),
    "concurrency_exceeded": Kind(status=429, type="rate_limit_error"),
    "rate_limited": Kind(status=429, type="rate_limit_error"),
    "request_aborted": Kind(status=499, type="request_cancelled"),
    "worker_error": Kind(status=500, type="server_error"),
    "internal_error": Kind(status=500, type="server_error"),
    "invalid_api_key": Kind(status=401, type="authentication_error"),
    "forbidden": Kind(status=403, type="permission_error"),
    "model_not_found": Kind(status=404, type="invalid_request_error"),
    "not_found": Kind(status=404, type="invalid_request_error"),
    "method_not_allowed": Kind(status=405, type="invalid_request_error"),
    "context_length_exceeded": Kind(status=403, type="tokens_exceeded_error"),
    "invalid_request_error": _INVALID,
    "invalid_json": _INVALID,
    "request_entity_too_large": Kind(status=413, type="invalid_request_error"),
}
_RETRY_SECONDS = 1.0
_SHOWN = 80
_UNION_BRANCH = re.compile(r"str$|literal\[|list\[|dict\[|function-|[A-Z]")  # how one type of several is named


class Refusal(Exception):
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
        """``retryable`` False: although the code's errors are as a rule, this one is not."""
        super().__init__(message)
        self.code = code
        self.kind = CODES[code] if retryable else replace(CODES[code], retryable=False)
        self.param = param
        self.retry_after = retry_after
        self.worker_status = worker_status
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The object that clients get, as a body or as an event of a stream."""
        told: dict[str, Any] = {"message": str(self), "type": self.kind.type, "code": self.code}
        if self.param is not None:
            told["param"] = self.param
        if self.kind.retryable:
            told["retryable"] = True
        if self.details:
            told["details"] = dict(self.details)
        found: dict[str, Any] = {"error": told}
        if self.worker_status is not None:
            found["worker_status"] = dict(self.worker_status)
        return found

    def response(self) -> Response:
        """The whole answer."""
        headers = {}
        if self.kind.status == 429 or self.kind.retryable:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after or _RETRY_SECONDS)))
        elif CODES[self.code].retryable:
            headers["X-Should-Retry"] = "false"  # the official client would try the status again
        if self.kind.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="debug-server"'
        return JSONResponse(self.to_json(), self.kind.status, headers)


def refusal_for(error: Exception) -> Refusal:
    """What to tell of an error from below."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ValidationError):
        return _invalid(error)
    if isinstance(error, UnavailableError):
        return _unavailable(error)
    if isinstance(error, WorkerError):
        return _worker_failed(error)
    if isinstance(error, DebugServerError):
        return Refusal("worker_error", str(error))
    return Refusal("internal_error", "the server failed; its log tells more under the request's id")


def _unavailable(error: UnavailableError) -> Refusal:
    code = error.code if error.code in CODES else "worker_unavailable"
    status = error.status if isinstance(error, WorkerNotReadyError) else None
    if status and status["health"]["liveness"]["reason"] == LivenessReason.RESTART_LIMIT_EXCEEDED:
        return Refusal(code, restart_advice(status["name"]), worker_status=status, retryable=False)
    return Refusal(code, str(error), retry_after=error.retry_after, worker_status=status)


def _invalid(error: ValidationError) -> Refusal:
    # Of a value that may be one thing or another, the fault that lies deepest is the telling one.
    fault = max(error.errors(include_url=False, include_context=False), key=lambda item: len(item["loc"]))
    where = [str(part) for part in fault["loc"] if not _UNION_BRANCH.match(str(part))]
    param = ".".join(where) or "body"
    shown = repr(fault["input"])
    value = f", not {shown}" if isinstance(fault["input"], str | int | float) and len(shown) <= _SHOWN else ""
    text = fault["msg"].removeprefix("Value error, ")
    return Refusal("invalid_request_error", f"{param}: {text[:1].lower()}{text[1:]}{value}", param=param)


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
_BY_STATUS = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limited"}  # of the model's provider


def _worker_failed(error: WorkerError) -> Refusal:
    told = error.data if isinstance(error.data, Mapping) else {}
    info = told.get("codexErrorInfo")
    status = None
    if isinstance(info, Mapping) and info:
        info, inner = next(iter(info.items()))
        status = inner.get("httpStatusCode") if isinstance(inner, Mapping) else None
    code = _BY_INFO.get(str(info).lower()) or _BY_STATUS.get(status or 0, "worker_error")
    data = told.get("data")
    details = (
        {name: data[name] for name in ("auth_url", "login_id") if name in data} if isinstance(data, Mapping) else {}
    )
    return Refusal(code, str(error), details=details)
