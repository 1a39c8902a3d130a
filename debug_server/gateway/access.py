"""Who may use the gateway: holders of its key or of a token and, if there is no key, the server's own user."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import HTTPConnection

from debug_server.config.gateway import GatewayConfig
from debug_server.errors import AccessError, ConfigurationError, ForbiddenError
from debug_server.gateway.api_errors import ApiError
from debug_server.service import LOCAL, Caller, audit
from debug_server.service.own_user import missing_token_message
from debug_server.service.request_origin import is_loopback

_KNOWN_KEYS = frozenset({"codex-local-secret", "changeme", "change-me", "secret", "test", "dev", "local"})
_SHORTEST_KEY = 16
_KEY_HOLDER = Caller(token_id=None, name="key", scopes=frozenset())

TokenCheck = Callable[[str], Awaitable[str]]
"""The name of a token's holder; AccessError for an unknown token, ForbiddenError if its scopes are missing."""

OwnUserCheck = Callable[[Mapping[str, Any]], Awaitable[str | None]]
"""Why the caller of an ASGI scope is not the server's own user; None if it is."""


class Access:
    """Authenticates requests by their headers and their peer."""

    def __init__(self, config: GatewayConfig, check_token: TokenCheck, check_own_user: OwnUserCheck) -> None:
        self._key = config.access.api_key
        self._check_token = check_token
        self._check_own_user = check_own_user

    async def require(self, connection: HTTPConnection) -> str:
        """The caller's name, for rate limits; ApiError if it is not authenticated."""
        secret = bearer_token(connection)
        if self._key is None and (reason := await self._check_own_user(connection.scope)) is None:
            audit.note_caller(LOCAL)
            return LOCAL.name
        if secret is None:
            raise ApiError(
                "invalid_api_key", self._advice() if self._key is not None else missing_token_message(str(reason))
            )
        if self._key is not None and same_secret(secret, self._key):
            audit.note_caller(_KEY_HOLDER)
            return _KEY_HOLDER.name
        try:
            return await self._check_token(secret)
        except ForbiddenError as error:
            raise ApiError("forbidden", str(error)) from error
        except AccessError as error:
            raise ApiError("invalid_api_key", f"unknown key: {self._advice()}") from error

    def _advice(self) -> str:
        if self._key is None:
            return (
                "without PROXY_API_KEY only the server's own user is served: "
                "send `Authorization: Bearer TOKEN` with a token of `debug-server token create`"
            )
        return "send `Authorization: Bearer KEY` with the key of PROXY_API_KEY, or a token"


def bearer_token(connection: HTTPConnection) -> str | None:
    """The bearer token of a request, or None."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return secret.strip() or None if scheme.lower() == "bearer" else None


def same_secret(given: str, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def refuse_insecure(config: GatewayConfig, host: str) -> None:
    """ConfigurationError for settings that are insecure when others can reach the server, or in production."""
    exposed = not is_loopback(host)
    if not exposed and config.access.environment == "dev":
        return
    key = config.access.api_key
    found = []
    if key is None and config.access.environment != "dev":
        found.append("PROXY_API_KEY is not set")
    if key is not None and (key.lower() in _KNOWN_KEYS or len(key) < _SHORTEST_KEY):
        found.append(f"PROXY_API_KEY is well known or too short (at least {_SHORTEST_KEY} characters)")
    if config.access.test_endpoints:
        found.append("PROXY_TEST_ENDPOINTS is on")
    if config.observation.metrics and config.observation.metrics_open:
        found.append("PROXY_METRICS_ALLOW_UNAUTH is on")
    if found:
        where = f"on {host}" if exposed else f"in PROXY_ENV={config.access.environment}"
        raise ConfigurationError(f"CONFIG_INSECURE: {'; '.join(found)}: change it, or do not serve {where}")
