"""The standard health service, answered from what the service finds when it is asked."""

from __future__ import annotations

from grpc.aio import ServicerContext
from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

from debug_server.messages import Nothing
from debug_server.service import Service
from debug_server.surfaces.grpc.schema import SERVICE

_NAMES = ("", SERVICE.full_name)


class Serving:
    """``grpc.health.v1.Health``: a check looks anew, and watchers learn what it found."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._told = aio.HealthServicer()

    async def Check(self, request: HealthCheckRequest, context: ServicerContext) -> HealthCheckResponse:
        """The state now."""
        await self._look()
        return await self._told.Check(request, context)

    async def List(self, request: HealthListRequest, context: ServicerContext) -> HealthListResponse:
        """The state of everything here."""
        status = HealthCheckResponse(status=await self._look())
        return HealthListResponse(statuses=dict.fromkeys(_NAMES, status))

    async def Watch(self, request: HealthCheckRequest, context: ServicerContext) -> None:
        """The state now, and each change that somebody's check or our shutdown brings."""
        await self._look()
        await self._told.Watch(request, context)

    async def leave(self) -> None:
        """Tell everybody that this server is on its way out."""
        await self._told.enter_graceful_shutdown()

    async def _look(self) -> int:
        healthy = not self._service.draining and (await self._service.health.check(None, Nothing())).ok
        status: int = HealthCheckResponse.SERVING if healthy else HealthCheckResponse.NOT_SERVING
        for name in _NAMES:
            await self._told.set(name, status)
        return status
