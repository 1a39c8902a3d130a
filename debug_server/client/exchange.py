"""One call over HTTP without I/O: builds the request, interprets its response, decides about retries.

Both clients share this; each sends and sleeps in its own way.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx

from debug_server import __version__
from debug_server.client.calls import Call
from debug_server.client.decoding import decode
from debug_server.client.failures import error_from_response, no_answer
from debug_server.errors import DebugServerError, InvalidInputError, UnavailableError
from debug_server.messages import OPERATIONS, ROUTES, Operation, Route
from debug_server.messages.task_operations import TASK_OPERATIONS

T = TypeVar("T")
ATTEMPTS = 6
_FIRST_DELAY, _MAX_DELAY = 0.1, 5.0
RETRIED = frozenset({429, 502, 503, 504})
_FILE_TYPES = "text/x-patch, application/octet-stream, */*"


def client_options(
    base_url: str, token: str | None, *, verify_tls: bool, timeout: float, before: Callable[[Any], Any]
) -> dict[str, Any]:
    """The arguments of either httpx client.

    ``before`` is called before each request to a server without a verified TLS certificate.
    """
    if not base_url.startswith(("http://", "https://")):
        raise InvalidInputError(f"base URL {base_url!r} must start with http:// or https://")
    if not 0 < timeout < math.inf:
        raise InvalidInputError(f"timeout {timeout!r} must be a number of seconds above 0, such as 30", field="timeout")
    headers = {"User-Agent": f"debug-server-client/{__version__}"}
    if token:
        if not token.isascii() or not token.isprintable():
            raise InvalidInputError("the token contains invalid characters: copy it again")
        headers["Authorization"] = f"Bearer {token}"
    hooks = [] if verify_tls and base_url.startswith("https://") else [before]
    return {
        "base_url": base_url,
        "headers": headers,
        "verify": verify_tls,
        "timeout": timeout,
        "event_hooks": {"request": hooks},
    }


def require_open(client: httpx.Client | httpx.AsyncClient) -> None:
    """InvalidInputError if the client is closed."""
    if client.is_closed:
        raise InvalidInputError("this client is closed: make a new one, or use it inside its `with` block")


def operation_of(name: str) -> Operation | None:
    """The operation; None for a route that returns an operation's result in another format."""
    return OPERATIONS.get(name) or TASK_OPERATIONS.get(name)


def route_of(name: str) -> Route:
    """The route of an operation, or of such a format."""
    return ROUTES.get(name) or TASK_OPERATIONS[name].route


def delay_before(attempt: int, *, server_delay: float = 0.0) -> float:
    """Seconds before retry number ``attempt``: doubling, with jitter so that many clients do not retry at once."""
    planned = min(_MAX_DELAY, _FIRST_DELAY * (1 << min(attempt, 10)))
    return max(min(server_delay, _MAX_DELAY), planned * random.uniform(0.5, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The time before the next attempt."""

    seconds: float


class Exchange(Generic[T]):
    """A call in progress: its request is built once, so that retries have the same idempotency key."""

    def __init__(self, call: Call[T], base_url: str, timeout: float, *, attempts: int = ATTEMPTS) -> None:
        self._call = call
        self._base_url = base_url
        self._attempt, self._attempts = 0, attempts
        self._connected = False
        route, operation = route_of(call.operation), operation_of(call.operation)
        path, rest = route.split(call.fields)
        self.request: dict[str, Any] = {"method": route.method, "url": path, "timeout": timeout + call.timeout}
        if route.method == "POST":
            self.request["json"] = rest
        elif rest:
            self.request["params"] = rest
        self.request["headers"] = {"Accept": "application/json" if operation else _FILE_TYPES}
        if operation and not operation.idempotent:
            self.request["headers"]["Idempotency-Key"] = call.key or secrets.token_hex(16)

    def reply_or_pause(self, response: httpx.Response) -> T | Pause:
        """The reply, or the pause before the next attempt; raises an error that cannot be retried."""
        if response.is_success or self._is_report(response):
            return decode(self._call.reply, response.content if self._call.reply is bytes else _body(response))
        return self.pause_after_error(response)

    def _is_report(self, response: httpx.Response) -> bool:
        """Whether it is the health report of an unhealthy server, which has status 503."""
        return self._call.operation == "health" and response.status_code == 503 and b'"checks"' in response.content

    def pause_after_error(self, response: httpx.Response) -> Pause:
        """The pause before the next attempt; raises an error that cannot be retried."""
        error = error_from_response(response, operation=self._call.operation)
        if response.status_code not in RETRIED:
            raise error
        return self._pause_or_raise(error)

    def pause_after_network_error(self, error: httpx.TransportError) -> Pause:
        """The pause after a network failure; raises it after the last attempt."""
        failure = no_answer(self._base_url, error)
        self._connected = failure.connected = self._connected or failure.connected
        return self._pause_or_raise(failure)

    def _pause_or_raise(self, error: DebugServerError) -> Pause:
        self._attempt += 1
        if self._attempt >= self._attempts:
            raise error
        server_delay = error.retry_after if isinstance(error, UnavailableError) else 0.0
        return Pause(seconds=delay_before(self._attempt - 1, server_delay=server_delay))


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise DebugServerError(f"{response.request.url} did not answer with JSON: is it a debug-server?") from error
