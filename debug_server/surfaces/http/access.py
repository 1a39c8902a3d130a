"""Who a connection comes from."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from debug_server.errors import AccessError, StoreUnavailableError
from debug_server.service import LOCAL, Caller, Service
from debug_server.service.caller import bearer_token
from debug_server.service.own_user import without_token
from debug_server.surfaces.http.middleware import record_of


async def identify(service: Service, connection: HTTPConnection) -> Caller:
    """The caller of a connection, noted for the audit record; AccessError when it is not known."""
    return await service.authenticate(_secret(connection))


def _secret(connection: HTTPConnection) -> str | None:
    if (secret := bearer_token(connection.headers.get("authorization"))) is not None:
        return secret
    # A browser cannot send headers with a WebSocket.
    return connection.query_params.get("token") if connection.scope["type"] == "websocket" else None


async def identify_or_local(service: Service, connection: HTTPConnection) -> Caller:
    """The holder of a token, or the server's own user without one; AccessError for anybody else."""
    if _secret(connection) is not None:
        return await identify(service, connection)
    if reason := await service.own_user.http_refusal(connection.scope):
        raise AccessError(without_token(reason))
    record_of(connection).caller = LOCAL
    return LOCAL


async def is_known(service: Service, connection: HTTPConnection) -> bool:
    """Whether the caller has any token or is the server's own user."""
    try:
        await identify_or_local(service, connection)
    except (AccessError, StoreUnavailableError):  # with the store away nobody is known
        return False
    return True
