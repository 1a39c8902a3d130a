"""Connects to the governor: finds its address and token, and converts its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from debug_server.client.connection import DEFAULT_GRPC_PORT as _DEFAULT_PORT
from debug_server.client.connection import ServerSettings, load_grpc_settings
from debug_server.errors import AccessError, DebugServerError, InvalidInputError, NotFoundError, UnreachableError
from debug_server.service import background
from debug_server.surfaces.cli.grpc import server_files
from debug_server.surfaces.cli.invocation import Invocation

CALL_SECONDS = 30.0


def target_of(call: Invocation, target: str | None) -> str:
    """The given target, else GOVERNOR_GRPC_PORT, else the server of this data folder, else the default port."""
    if target:
        return target if ":" in target else f"{target}:{_DEFAULT_PORT}"
    if port := os.environ.get("GOVERNOR_GRPC_PORT"):
        return f"127.0.0.1:{port}"
    return f"127.0.0.1:{_own_port(call)}"


def _own_port(call: Invocation) -> int:
    """The gRPC port that this data folder's server has recorded; the default port if there is none."""
    port = background.running_server(server_files(call)).get("grpc_port")
    return port if isinstance(port, int) else _DEFAULT_PORT


def settings_for(call: Invocation, target: str) -> ServerSettings:
    """The token for that address, and the user that may run the server."""
    web = background.running_server(server_files(call)).get("http")
    own_url = web if isinstance(web, str) else None
    return load_grpc_settings(target, call.flags, own_port=_own_port(call), own_url=own_url)


@contextmanager
def channel_to(call: Invocation, target: str) -> Iterator[Any]:
    """A gRPC channel; gRPC errors inside the block are raised as DebugServerError."""
    import grpc

    from debug_server.client.relay import Relay

    with Relay(target, settings_for(call, target).trusted) as relay:
        try:
            with grpc.insecure_channel(relay.address, options=relay.options) as channel:
                yield channel
        except grpc.RpcError as error:
            raise _converted_error(error, target, relay.failure) from error
        except grpc.FutureTimeoutError as error:
            raise (relay.failure if isinstance(relay.failure, DebugServerError) else error) from None


def credentials(call: Invocation, target: str) -> tuple[tuple[str, str], ...]:
    """The token for that address as metadata, if there is one."""
    token = settings_for(call, target).token
    return (("authorization", f"Bearer {token}"),) if token else ()


def _converted_error(error: Any, target: str, failure: Exception | None) -> DebugServerError:
    """Convert a gRPC error; ``failure`` is the error that prevented the connection, if any."""
    if isinstance(failure, DebugServerError):
        return failure
    name, details = error.code().name, error.details() or ""
    if name == "UNAVAILABLE":
        return UnreachableError(
            f"{target} does not answer ({failure or details}): start it with `debug-server grpc start`"
        )
    kinds: dict[str, type[DebugServerError]] = {
        "UNAUTHENTICATED": AccessError,
        "PERMISSION_DENIED": AccessError,
        "NOT_FOUND": NotFoundError,
    }
    if name in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"):
        return InvalidInputError(details)
    if name == "UNIMPLEMENTED":
        return NotFoundError(f"{target} has no kanban services: start the server in a folder with config/runners.yml")
    return kinds.get(name, DebugServerError)(f"{target}: {name}: {details}")
