"""Who a connection comes from."""

from __future__ import annotations

from ipaddress import ip_address

from starlette.requests import HTTPConnection

from debug_server.errors import AccessError
from debug_server.service import Caller, Service
from debug_server.surfaces.http.gate import notes_of


async def identify(service: Service, connection: HTTPConnection) -> Caller:
    """The caller of a connection, noted for the audit record; AccessError when it is not known."""
    caller = await service.authenticate(_secret(connection))
    notes_of(connection).caller = caller
    return caller


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
    except AccessError:
        return False
    return True


def from_loopback(connection: HTTPConnection) -> bool:
    """Whether the peer is this machine itself."""
    try:
        return connection.client is not None and ip_address(connection.client.host).is_loopback
    except ValueError:
        return False
