"""The gateway's paths; each request gets CORS headers, errors in the API's form, a log record and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from debug_server.config.gateway import GatewayConfig
from debug_server.gateway.access import bearer_token
from debug_server.gateway.api_errors import ApiError, api_error_for
from debug_server.gateway.endpoints import Endpoints, Handler
from debug_server.gateway.exchange import Exchange
from debug_server.gateway.request_record import RequestRecord
from debug_server.ports import Telemetry
from debug_server.service.request_origin import is_loopback

_METHODS = "GET, HEAD, POST, OPTIONS"
_CORS_HEADERS = (
    "Authorization, Content-Type, X-Request-Id, OpenAI-Organization, OpenAI-Project, X-Stainless-Retry-Count"
)


class GatewayRoute:
    """One path as an ASGI application."""

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler],
        *,
        config: GatewayConfig,
        telemetry: Telemetry,
        worker_state: Callable[[], dict[str, Any]],
    ) -> None:
        self._path = path
        self._handlers = handlers
        self._config = config
        self._telemetry = telemetry
        self._worker_state = worker_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        notes = scope.get("debug_server.notes")  # from the middleware around all parts
        record = RequestRecord(
            self._telemetry,
            route=self._path,
            method=scope["method"],
            request_id=notes.request_id if notes is not None else "",
        )
        exchange = Exchange(scope, receive, send, record)
        exchange.headers = self._cors(exchange)
        try:
            await self._serve(exchange)
        except Exception as error:  # noqa: BLE001 - the boundary: every exception becomes one API error
            api_error = api_error_for(error)
            record.failed(api_error, error)
            record.status = api_error.kind.status
            if api_error.code != "request_aborted":
                await exchange.answer(api_error.response())
        except asyncio.CancelledError:  # the server stops and cuts off the client
            record.code, record.status = "request_aborted", 499
            raise
        finally:
            record.ended(self._worker_state())

    async def _serve(self, exchange: Exchange) -> None:
        method = exchange.request.method
        if method == "OPTIONS":
            await exchange.answer(Response(status_code=204))
        elif (handler := self._handlers.get(method) or self._handlers.get("*")) is not None:
            await handler(exchange)
        else:
            raise ApiError("method_not_allowed", f"{method} is not supported on {self._path!r}")

    def _cors(self, exchange: Exchange) -> dict[str, str]:
        """The CORS headers: which answers a page of another origin may read.

        Without a key only answers to requests with a token, from a page of this machine: other answers belong to the
        server's own user, and any page could ask for them.
        """
        request = exchange.request
        origin = request.headers.get("origin")
        if not self._config.access.cors or origin is None:
            return {}
        by_token = request.method == "OPTIONS" or bearer_token(request) is not None
        is_local = is_loopback(origin.partition("://")[2].rsplit(":", 1)[0])
        if self._config.access.api_key is None and not (by_token and is_local):
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Vary": "Origin",
            "Access-Control-Allow-Methods": _METHODS,
            "Access-Control-Allow-Headers": _CORS_HEADERS,
            "Access-Control-Expose-Headers": "X-Request-Id, Retry-After",
            "Access-Control-Max-Age": "600",
        }


def v1_routes(
    endpoints: Endpoints,
    *,
    config: GatewayConfig,
    telemetry: Telemetry,
    worker_state: Callable[[], dict[str, Any]],
) -> list[BaseRoute]:
    """Every path below ``/v1``."""
    table: dict[str, dict[str, Handler]] = {
        "/v1/chat/completions": {"POST": endpoints.chat, "HEAD": endpoints.head},
        "/v1/responses": {"POST": endpoints.responses, "HEAD": endpoints.head},
        "/v1/models": {"GET": endpoints.models, "HEAD": endpoints.models},
        "/v1/models/{model:path}": {"GET": endpoints.model, "HEAD": endpoints.model},
        "/v1/usage": {"GET": endpoints.usage_totals},
        "/v1/usage/raw": {"GET": endpoints.usage_entries},
    }
    if config.access.test_endpoints:
        table["/__test/conc"] = {"GET": endpoints.concurrency}
    table["/v1/{rest:path}"] = {"*": endpoints.unknown}
    made: list[BaseRoute] = []
    for path, handlers in table.items():
        label = path.partition("{")[0] + "*" if "{" in path else path
        route = GatewayRoute(label, handlers, config=config, telemetry=telemetry, worker_state=worker_state)
        made.append(Route(path, route))
    return made
