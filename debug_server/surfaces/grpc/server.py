"""The gRPC server: its address, its limits, and the services on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio
from grpc_reflection.v1alpha import reflection

from debug_server.errors import ConfigurationError
from debug_server.service import Service
from debug_server.sockets.ports import reserve_port
from debug_server.surfaces.grpc.connections import Connections
from debug_server.surfaces.grpc.handlers import handlers
from debug_server.surfaces.grpc.schema import SERVICE
from debug_server.surfaces.grpc.serving import HEALTH, HealthService, ReflectionService
from debug_server.surfaces.grpc.unidentified import UnidentifiedCallers

DEFAULT_PORT = 50051
MAX_REQUEST_BYTES = 20 << 20  # a patch of 16 MiB and what comes with it

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.so_reuseport", 0),  # otherwise a second server on the port would not fail, but take half of the calls
    ("grpc.keepalive_time_ms", 30_000),  # detects dead peers and ends their streams
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_concurrent_streams", 1024),  # per connection; followers are limited in total
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A certificate chain and its key, as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The number of connections, and their timeouts.

    Only connections of unidentified callers have a maximum age: it would interrupt callers that follow long commands.
    """

    max_connections: int = 1024
    handshake_seconds: float = 20.0
    idle_seconds: float = 75.0
    unidentified_seconds: float = (
        75.0  # within which the caller must be identified, by a token or as the server's own user
    )

    @property
    def max_unidentified(self) -> int:
        """Unidentified callers may have half of the connections, so that identified callers can always connect."""
        return self.max_connections // 2

    def options(self) -> tuple[tuple[str, int], ...]:
        """The same as the library's options."""
        return (
            ("grpc.max_allowed_incoming_connections", self.max_connections),
            ("grpc.server_handshake_timeout_ms", round(self.handshake_seconds * 1000)),
            ("grpc.max_connection_idle_ms", round(self.idle_seconds * 1000)),
        )


class GrpcServer:
    """Every service on one port; made by ``build_server``."""

    def __init__(
        self, server: aio.Server, serving: HealthService, connections: Connections, *, host: str, port: int
    ) -> None:
        self._server = server
        self._serving = serving
        self._connections = connections
        self._watching: asyncio.Task[None] | None = None
        self.host = host
        self.port = port

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()
        self._watching = asyncio.create_task(self._connections.watch())

    async def stop(self, grace: float) -> None:
        """Take no new calls; those that still run after ``grace`` seconds are cancelled."""
        await self._serving.begin_shutdown()
        await self._server.stop(grace)
        if self._watching is not None:
            self._watching.cancel()


def build_server(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    tls: Tls | None = None,
    part_services: Mapping[str, Any] | None = None,
    limits: ConnectionLimits | None = None,
) -> GrpcServer:
    """Create a server that is bound (port 0: to a free port) but not started; call this in the server's event loop.

    ``part_services`` are generic handlers of further services by their full names.
    """
    limits = limits or ConnectionLimits()
    server = aio.server(options=(*_OPTIONS, *limits.options()))
    unidentified = UnidentifiedCallers()
    ours = grpc.method_handlers_generic_handler(SERVICE.full_name, handlers(service, unidentified))
    services = {SERVICE.full_name: ours, **(part_services or {})}
    server.add_generic_rpc_handlers(tuple(services.values()))
    serving = HealthService(service, unidentified)
    names = (*services, HEALTH, reflection.SERVICE_NAME)
    reflecting = ReflectionService(service, unidentified, names)
    standard = {HEALTH: serving.handlers(), reflection.SERVICE_NAME: reflecting.handlers()}
    for name, methods in standard.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
    bound = _bind(server, host, port, tls)
    service.grpc_address = (host, bound)
    connections = Connections(
        service.identified_peers,
        port=bound,
        max_unidentified=limits.max_unidentified,
        unidentified_seconds=limits.unidentified_seconds,
    )
    return GrpcServer(server, serving, connections, host=host, port=bound)


def _bind(server: aio.Server, host: str, port: int, tls: Tls | None) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # Otherwise the library prints its own message to stderr first.
    reserve_port(host, port, what=f"gRPC cannot listen on {address}", remedy="choose another host or port").close()
    try:
        if tls is None:
            bound: int = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([(tls.key, tls.certificate)]))
    except RuntimeError as error:
        check = "choose another host or port" if tls is None else "check certificate and key, host and port"
        raise ConfigurationError(f"gRPC cannot listen on {address}: {check}") from error
    return bound
