"""Who a connection comes from."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from debug_server.errors import AccessError, StoreUnavailableError
from debug_server.service import LOCAL, Caller, Service
from debug_server.service.locality import is_handed_on, is_local, is_loopback
from debug_server.surfaces.http.gate import notes_of


async def identify(service: Service, connection: HTTPConnection) -> Caller:
    """The caller of a connection, noted for the audit record; AccessError when it is not known."""
    return await service.authenticate(_secret(connection))


def _secret(connection: HTTPConnection) -> str | None:
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return secret.strip()
    # A browser cannot send headers with a WebSocket.
    return connection.query_params.get("token") if connection.scope["type"] == "websocket" else None


async def is_trusted(service: Service, connection: HTTPConnection) -> bool:
    """Whether the caller is on this machine or has any token."""
    if from_loopback(connection):
        return True
    try:
        await identify(service, connection)
    except (AccessError, StoreUnavailableError):  # with the store away nobody is known
        return False
    return True


def from_loopback(connection: HTTPConnection) -> bool:
    """Whether the peer is this machine itself, and speaks for nobody else."""
    if connection.client is None:
        return False
    return is_loopback(connection.client.host) and not is_handed_on(connection.headers.keys())


async def identify_or_local(service: Service, connection: HTTPConnection) -> Caller:
    """The holder of a token, or whoever calls from this machine without one; AccessError for anybody else."""
    headers = connection.headers
    peer = connection.client.host if connection.client else None
    local = is_local(peer, headers.get("host"), headers.get("origin"), headers.keys())
    if local and _secret(connection) is None:
        notes_of(connection).caller = LOCAL
        return LOCAL
    return await identify(service, connection)
