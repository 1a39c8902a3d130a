"""Authenticates connections."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from debug_server.errors import AccessError, StoreUnavailableError
from debug_server.service import LOCAL, Caller, Service
from debug_server.service.caller import bearer_token
from debug_server.service.own_user import missing_token_message
from debug_server.surfaces.http.middleware import record_of


async def identify(service: Service, connection: HTTPConnection) -> Caller:
    """Authenticate by token, and add the caller to the audit record; AccessError if there is no valid token."""
    return await service.authenticate(_secret(connection))


def _secret(connection: HTTPConnection) -> str | None:
    if (secret := bearer_token(connection.headers.get("authorization"))) is not None:
        return secret
    # A browser cannot send headers with a WebSocket.
    return connection.query_params.get("token") if connection.scope["type"] == "websocket" else None


async def identify_or_local(service: Service, connection: HTTPConnection) -> Caller:
    """The holder of a token, or the server's own user without one; AccessError for others."""
    if _secret(connection) is not None:
        return await identify(service, connection)
    if reason := await service.own_user.why_not_own_http_user(connection.scope):
        raise AccessError(missing_token_message(reason))
    record_of(connection).caller = LOCAL
    return LOCAL


async def is_identified(service: Service, connection: HTTPConnection) -> bool:
    """Whether the caller has any token or is the server's own user."""
    try:
        await identify_or_local(service, connection)
    except (AccessError, StoreUnavailableError):  # tokens cannot be checked without the store
        return False
    return True
