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
from debug_server.service.own_user import Peer, TcpPeer, without_token
from debug_server.service.request_origin import is_loopback, is_proxied
from debug_server.surfaces.grpc.refusal import refuse, status_of

_LOG = logging.getLogger(__name__)


@asynccontextmanager
async def admitted(
    service: Service, context: ServicerContext, path: str, scopes: Collection[str] | None, *, local: bool = False
) -> AsyncIterator[Caller]:
    """Authenticate the caller and check ``scopes``; an error in the block ends the call with its status.

    Without ``scopes`` anybody may call; with ``local`` the server's own user needs no token.
    """
    record = audit.Record(method="GRPC", path=path, status="OK")
    audit.begin(record)
    try:
        if scopes is None:
            caller = ANONYMOUS if await _stranger(service, context) else LOCAL
        else:
            caller = record.caller = await _identify(service, context, local=local)
            caller.require(scopes)
        yield caller
    except DebugServerError as error:
        record.status = status_of(error).name
        await refuse(context, error)
    except asyncio.CancelledError:
        record.status = "CANCELLED"
        raise
    except Exception:  # noqa: BLE001 - a bug must not expose internals to the caller
        if context.done():  # the peer disconnected during the response
            record.status = "CANCELLED"
            raise asyncio.CancelledError from None
        record.status = "INTERNAL"
        _LOG.exception("grpc_call_failed", extra={"path": path})
        await refuse(context, DebugServerError("internal error: see the server's log"))
    finally:
        record.caller = record.caller or ANONYMOUS
        record.write()


def bearer(context: ServicerContext) -> str | None:
    """The token of the call's metadata."""
    return bearer_token(metadata(context, "authorization"))


async def _identify(service: Service, context: ServicerContext, *, local: bool) -> Caller:
    secret = bearer(context)
    if secret is not None or not local:
        return await service.authenticate(secret)
    if reason := await _stranger(service, context):
        raise AccessError(without_token(reason))
    return LOCAL


async def _stranger(service: Service, context: ServicerContext) -> str | None:
    """Why the caller is not the server's own user; None when it is."""
    if is_proxied([name for name, _ in context.invocation_metadata() or ()]):
        return "the call came through a proxy"
    reason = await service.own_user.refusal(_peer(service, context))
    # If this connection has closed, the lookup may have found a later connection from the same port.
    return reason or ("the caller has disconnected" if context.done() else None)


def _peer(service: Service, context: ServicerContext) -> Peer | None:
    """``ipv4:127.0.0.1:5`` or ``ipv6:[::1]:5``."""
    kind, _, rest = unquote(context.peer()).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or service.grpc_address is None:
        return None
    ours, our_port = service.grpc_address
    # The library does not say which of our addresses was called; it is certain only if we listen on a single one.
    single = ours if is_loopback(ours) and ours != "localhost" else None
    return TcpPeer(host=host.strip("[]"), port=int(port), server_host=single, server_port=our_port)


def metadata(context: ServicerContext, name: str) -> str | None:
    """The first text with this name in the call's metadata."""
    for key, value in context.invocation_metadata() or ():
        if key == name and isinstance(value, str):
            return value
    return None
