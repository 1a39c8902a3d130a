"""A channel to the governor: which address, which token, and what its refusals mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debug_server.errors import AccessError, DebugServerError, InvalidInputError, NotFoundError, UnavailableError
from debug_server.service import background
from debug_server.surfaces.cli.connection import DEFAULT_GRPC_PORT as _DEFAULT_PORT
from debug_server.surfaces.cli.connection import Connection, grpc_connection
from debug_server.surfaces.cli.grpc import places_of
from debug_server.surfaces.cli.invocation import Invocation

CALL_SECONDS = 30.0


def target_of(call: Invocation, target: str | None) -> str:
    """As asked for, or the server that runs here, or the usual port."""
    if target:
        return target if ":" in target else f"{target}:{_DEFAULT_PORT}"
    if port := os.environ.get("GOVERNOR_GRPC_PORT"):
        return f"127.0.0.1:{port}"
    return f"127.0.0.1:{_own_port(call)}"


def _own_port(call: Invocation) -> int:
    """Of the server that runs here, which notes it; of one that does not run, or has none, the usual one."""
    port = background.known_state(places_of(call)).get("grpc_port")
    return port if isinstance(port, int) else _DEFAULT_PORT


def connection_to(call: Invocation, target: str) -> Connection:
    """Who we are at that address, and whose server it may be."""
    web = background.known_state(places_of(call)).get("http")
    own_url = web if isinstance(web, str) else None
    return grpc_connection(target, call.flags, own_port=_own_port(call), own_url=own_url)


@contextmanager
def channel_to(call: Invocation, target: str) -> Iterator[Any]:
    """A channel; what a call on it raises inside the block becomes one of our errors."""
    import grpc

    from debug_server.client.relay import Relay

    with Relay(target, connection_to(call, target).trusted) as relay:
        try:
            with grpc.insecure_channel(relay.address, options=relay.options) as channel:
                yield channel
        except grpc.RpcError as error:
            raise _meaning(error, target, relay.failure) from error
        except grpc.FutureTimeoutError as error:
            raise (relay.failure if isinstance(relay.failure, DebugServerError) else error) from None


def credentials(call: Invocation, target: str) -> tuple[tuple[str, str], ...]:
    """The token for that address as metadata, if there is one."""
    token = connection_to(call, target).token
    return (("authorization", f"Bearer {token}"),) if token else ()


def _meaning(error: Any, target: str, failure: Exception | None) -> DebugServerError:
    """What a refusal says; ``failure`` is why no connection was made."""
    if isinstance(failure, DebugServerError):
        return failure
    name, details = error.code().name, error.details() or ""
    if name == "UNAVAILABLE":
        return UnavailableError(
            f"{target} does not answer ({failure or details}): start it with `debug-server grpc start`"
        )
    kinds = {"UNAUTHENTICATED": AccessError, "PERMISSION_DENIED": AccessError, "NOT_FOUND": NotFoundError}
    if name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"):
        return InvalidInputError(details)
    if name == "UNIMPLEMENTED":
        return NotFoundError(f"{target} has no kanban services: is config/runners.yml where the server was started?")
    return kinds.get(name, DebugServerError)(f"{target}: {name}: {details}")
