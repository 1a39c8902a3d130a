"""``/metrics`` where a gateway is served: the same metrics, behind the gateway's own rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import AccessError
from debug_server.gateway.access import TokenCheck, bearer, from_here, same_secret

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Endpoint = Callable[[Request], Awaitable[Response]]


def metrics_endpoint(config: GatewayConfig, check_token: TokenCheck, render: Callable[[], str]) -> Endpoint:
    """The endpoint."""

    async def metrics(request: Request) -> Response:
        if not config.observation.metrics:
            return _refused("metrics_disabled")
        if not await _allowed(config, check_token, request):
            return _refused("metrics_forbidden")
        return Response(render(), media_type=_TYPE)

    return metrics


async def _allowed(config: GatewayConfig, check_token: TokenCheck, request: Request) -> bool:
    rules = config.observation
    if rules.metrics_open or (rules.metrics_loopback and from_here(request)):
        return True
    secret = bearer(request)
    if secret is None:
        return False
    own = [key for key in (rules.metrics_token, config.access.api_key) if key is not None]
    if any(same_secret(secret, key) for key in own):
        return True
    try:
        await check_token(secret)
    except AccessError:
        return False
    return True


def _refused(reason: str) -> Response:
    return JSONResponse({"ok": False, "reason": reason}, 403)
