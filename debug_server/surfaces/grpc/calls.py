"""Handles one gRPC call: authentication, scopes, errors, audit record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from urllib.parse import unquote

from grpc.aio import ServicerContext

from debug_server.errors import AccessError, DebugServerError
from debug_server.service import LOCAL, Caller, Service, audit
from debug_server.service.caller import ANONYMOUS, bearer_token
from debug_server.service.identified_peers import Address
from debug_server.service.own_user import Peer, TcpPeer, missing_token_message
from debug_server.service.request_origin import is_loopback, is_proxied
from debug_server.surfaces.grpc.refusal import abort_call, status_of

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def authenticated_call(
    service: Service, context: ServicerContext, path: str, scopes: Collection[str] | None, *, local: bool = False
) -> AsyncIterator[Caller]:
    """Authenticate the caller and check ``scopes``; an error in the block ends the call with its status.

    Without ``scopes`` anybody may call; with ``local`` the server's own user needs no token.
    """
    record = audit.Record(method="GRPC", path=path, status="OK")
    audit.begin(record)
    try:
        if scopes is None:
            caller = LOCAL if await is_own_user(service, context) else ANONYMOUS
        else:
            caller = record.caller = await _identify(service, context, local=local)
            _mark_identified(service, context)
            caller.require(scopes)
        yield caller
    except DebugServerError as error:
        record.status = status_of(error).name
        await abort_call(context, error)
    except asyncio.CancelledError:
        record.status = "CANCELLED"
        raise
    except Exception:  # noqa: BLE001 - a bug must not expose internals to the caller
        if context.done():  # the peer disconnected during the response
            record.status = "CANCELLED"
            raise asyncio.CancelledError from None
        record.status = "INTERNAL"
        _LOG.exception("grpc_call_failed", extra={"path": path})
        await abort_call(context, DebugServerError("internal error: see the server's log"))
    finally:
        record.caller = record.caller or ANONYMOUS
        record.write()


def bearer(context: ServicerContext) -> str | None:
    """The token of the call's metadata."""
    return bearer_token(metadata(context, "authorization"))


async def is_own_user(service: Service, context: ServicerContext) -> bool:
    """Whether the caller is the server's own user, according to the kernel; marks the connection as identified."""
    if await _refusal_reason(service, context):
        return False
    _mark_identified(service, context)
    return True


async def is_identified(service: Service, context: ServicerContext) -> bool:
    """Whether a caller on this connection has been identified, now or by an earlier call."""
    if address_of(context) in service.identified_peers or await is_own_user(service, context):
        return True
    try:
        await service.authenticate(bearer(context))
    except DebugServerError:
        return False
    _mark_identified(service, context)
    return True


def address_of(context: ServicerContext) -> Address | None:
    """The peer's ``ipv4:127.0.0.1:5`` or ``ipv6:[::1]:5``."""
    kind, _, rest = unquote(context.peer()).partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") else None


def _mark_identified(service: Service, context: ServicerContext) -> None:
    if (address := address_of(context)) is not None:
        service.identified_peers.add(address)


async def _identify(service: Service, context: ServicerContext, *, local: bool) -> Caller:
    secret = bearer(context)
    if secret is not None or not local:
        return await service.authenticate(secret)
    if reason := await _refusal_reason(service, context):
        raise AccessError(missing_token_message(reason))
    return LOCAL


async def _refusal_reason(service: Service, context: ServicerContext) -> str | None:
    """Why the caller is not the server's own user; None when it is."""
    if is_proxied([name for name, _ in context.invocation_metadata() or ()]):
        return "the call came through a proxy"
    reason = await service.own_user.why_not_own_user(_peer(service, context))
    # If this connection has closed, the lookup may have found a later connection from the same port.
    return reason or ("the caller has disconnected" if context.done() else None)


def _peer(service: Service, context: ServicerContext) -> Peer | None:
    address = address_of(context)
    if address is None or service.grpc_address is None:
        return None
    ours, our_port = service.grpc_address
    # The library does not report the local address of the call; it is known only if we listen on a single address.
    single = ours if is_loopback(ours) and ours != "localhost" else None
    return TcpPeer(host=address[0], port=address[1], server_host=single, server_port=our_port)


def metadata(context: ServicerContext, name: str) -> str | None:
    """The first text with this name in the call's metadata."""
    for key, value in context.invocation_metadata() or ():
        if key == name and isinstance(value, str):
            return value
    return None
