"""The standard services, which need no token: health and reflection.

Streams of unidentified callers are ended after a timeout.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
from grpc.aio import ServicerContext
from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import (
    DESCRIPTOR,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListResponse,
)
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from debug_server.errors import DebugServerError, InvalidInputError, NotFoundError
from debug_server.messages import EmptyRequest
from debug_server.service import Service
from debug_server.surfaces.grpc.calls import is_identified
from debug_server.surfaces.grpc.decoding import parse
from debug_server.surfaces.grpc.refusal import abort_call
from debug_server.surfaces.grpc.schema import SERVICE
from debug_server.surfaces.grpc.unidentified import Requests, UnidentifiedCallers, require_message

HEALTH = DESCRIPTOR.services_by_name["Health"].full_name
_NAMES = ("", SERVICE.full_name)
_MAX_REQUEST_BYTES = 1024  # the name of a service, or of a file of its description


class HealthService:
    """``grpc.health.v1.Health``: each check runs the service's checks and updates all watchers."""

    def __init__(self, service: Service, unidentified: UnidentifiedCallers) -> None:
        self._service = service
        self._unidentified = unidentified
        self._servicer = aio.HealthServicer()

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        """By name; requests stay bytes until their length is known to be small."""
        unary, streaming = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        return {
            "Check": unary(self._check, response_serializer=HealthCheckResponse.SerializeToString),
            "List": unary(self._list, response_serializer=HealthListResponse.SerializeToString),
            "Watch": streaming(self._watch, response_serializer=HealthCheckResponse.SerializeToString),
        }

    async def _check(self, requests: Requests, context: ServicerContext) -> HealthCheckResponse:
        """The state now."""
        async with _refusing(context):
            await self._read_request(requests, known=await is_identified(self._service, context))
            return HealthCheckResponse(status=await self._update_status())

    async def _list(self, requests: Requests, context: ServicerContext) -> HealthListResponse:
        """The state of everything here."""
        async with _refusing(context):
            await self._read_request(requests, known=await is_identified(self._service, context))
            status = HealthCheckResponse(status=await self._update_status())
            return HealthListResponse(statuses=dict.fromkeys(_NAMES, status))

    async def _watch(self, requests: Requests, context: ServicerContext) -> None:
        """The current state, and each change that a later check finds or the shutdown causes."""
        async with _refusing(context):
            known = await is_identified(self._service, context)
            request = await self._read_request(requests, known=known)
            await self._update_status()
            if known:
                await self._servicer.Watch(request, context)
            else:
                async with self._unidentified.stream(context):
                    await self._servicer.Watch(request, context)

    async def _read_request(self, requests: Requests, *, known: bool) -> HealthCheckRequest:
        request = parse(HealthCheckRequest, await _read_small(self._unidentified, requests, known=known))
        if request.service not in _NAMES:
            raise NotFoundError(f"unknown service: use one of {', '.join(map(repr, _NAMES))}")
        return request

    async def begin_shutdown(self) -> None:
        """Report NOT_SERVING to all watchers, because the server shuts down."""
        await self._servicer.enter_graceful_shutdown()

    async def _update_status(self) -> int:
        healthy = not self._service.draining and (await self._service.health.check(None, EmptyRequest())).ok
        status: int = HealthCheckResponse.SERVING if healthy else HealthCheckResponse.NOT_SERVING
        for name in _NAMES:
            await self._servicer.set(name, status)
        return status


class ReflectionService:
    """``grpc.reflection.v1alpha.ServerReflection``."""

    def __init__(self, service: Service, unidentified: UnidentifiedCallers, names: Sequence[str]) -> None:
        self._service = service
        self._unidentified = unidentified
        self._servicer = reflection.aio.ReflectionServicer(names)

    def handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        """By name."""
        answer = grpc.stream_stream_rpc_method_handler(
            self._reflect, response_serializer=ServerReflectionResponse.SerializeToString
        )
        return {"ServerReflectionInfo": answer}

    async def _reflect(self, requests: Requests, context: ServicerContext) -> None:
        async with _refusing(context):
            if await is_identified(self._service, context):
                await self._answer(requests, context, known=True)
            else:
                async with self._unidentified.stream(context):
                    await self._answer(requests, context, known=False)

    async def _answer(self, requests: Requests, context: ServicerContext, *, known: bool) -> None:
        asked = self._parsed(requests, known=known)
        async for reply in self._servicer.ServerReflectionInfo(asked, context):
            await context.write(reply)

    async def _parsed(self, requests: Requests, *, known: bool) -> AsyncIterator[ServerReflectionRequest]:
        while (data := await _next(self._unidentified, requests, known=known)) is not None:
            yield parse(ServerReflectionRequest, data)


async def _next(unidentified: UnidentifiedCallers, requests: Requests, *, known: bool) -> bytes | None:
    data = await (anext(requests, None) if known else unidentified.read(requests))
    if data is not None and (size := len(data)) > _MAX_REQUEST_BYTES:
        del data  # the error's traceback would keep it until the next full collection
        raise InvalidInputError(f"the request has {size} bytes: the limit is {_MAX_REQUEST_BYTES}")
    return data


async def _read_small(unidentified: UnidentifiedCallers, requests: Requests, *, known: bool) -> bytes:
    return require_message(await _next(unidentified, requests, known=known))


@asynccontextmanager
async def _refusing(context: ServicerContext) -> AsyncIterator[None]:
    try:
        yield
    except DebugServerError as error:
        await abort_call(context, error)
