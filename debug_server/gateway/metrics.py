"""``/metrics`` of a server with a gateway: the same metrics, with the access rules of the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import AccessError, ForbiddenError
from debug_server.gateway.access import OwnUserCheck, TokenCheck, bearer_token, same_secret

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Endpoint = Callable[[Request], Awaitable[Response]]


def metrics_endpoint(
    config: GatewayConfig, check_token: TokenCheck, check_own_user: OwnUserCheck, render: Callable[[], str]
) -> Endpoint:
    """The endpoint."""

    async def metrics(request: Request) -> Response:
        if not config.observation.metrics:
            return _refused("metrics_disabled")
        if not await _allowed(config, check_token, check_own_user, request):
            return _refused("metrics_forbidden")
        return Response(render(), media_type=_TYPE)

    return metrics


async def _allowed(
    config: GatewayConfig, check_token: TokenCheck, check_own_user: OwnUserCheck, request: Request
) -> bool:
    rules = config.observation
    secret = bearer_token(request)
    if rules.metrics_open or (secret is not None and await _is_valid(config, check_token, secret)):
        return True
    return rules.metrics_loopback and await check_own_user(request.scope) is None


async def _is_valid(config: GatewayConfig, check_token: TokenCheck, secret: str) -> bool:
    own = [key for key in (config.observation.metrics_token, config.access.api_key) if key is not None]
    if any(same_secret(secret, key) for key in own):
        return True
    try:
        await check_token(secret)
    except ForbiddenError:
        return True  # a token without the scope for turns may still read metrics
    except AccessError:
        return False
    return True


def _refused(reason: str) -> Response:
    return JSONResponse({"ok": False, "reason": reason}, 403)
