"""The handler of each operation, and of the two rpcs that stream bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import grpc
from google.protobuf.message import Message
from grpc.aio import ServicerContext

from debug_server.messages import OPERATIONS, ServiceOperation
from debug_server.service import Service
from debug_server.surfaces.grpc.byte_streams import Stream, fetch_artifact, fetch_diff
from debug_server.surfaces.grpc.calls import authenticated_call, is_identified, metadata
from debug_server.surfaces.grpc.decoding import parse, request_of
from debug_server.surfaces.grpc.encoding import message_of
from debug_server.surfaces.grpc.schema import Rpc, rpc, rpc_name
from debug_server.surfaces.grpc.unidentified import Requests, UnidentifiedCallers, read_one, require_message

Answer = Callable[[Requests, ServicerContext], Awaitable[Message]]


def handlers(service: Service, unidentified: UnidentifiedCallers) -> dict[str, grpc.RpcMethodHandler]:
    """Every rpc of the proto by name."""
    files = {"FetchArtifact": fetch_artifact(service), "FetchDiff": fetch_diff(service)}
    return {rpc_name(item.name): _handler(service, unidentified, item) for item in OPERATIONS.values()} | {
        name: _streaming(rpc(name), behaviour) for name, behaviour in files.items()
    }


def _handler(service: Service, unidentified: UnidentifiedCallers, operation: ServiceOperation) -> grpc.RpcMethodHandler:
    called = rpc(rpc_name(operation.name))
    if operation.stream:
        return _streaming(called, _stream(service, operation, called))
    # Requests stay bytes until we decode them: the library answers an invalid one with a traceback.
    return grpc.stream_unary_rpc_method_handler(
        _answer(service, unidentified, operation, called), response_serializer=called.reply.SerializeToString
    )


def _streaming(called: Rpc, behaviour: Stream) -> grpc.RpcMethodHandler:
    return grpc.stream_stream_rpc_method_handler(behaviour, response_serializer=called.reply.SerializeToString)


def _answer(service: Service, unidentified: UnidentifiedCallers, operation: ServiceOperation, called: Rpc) -> Answer:
    async def answer(requests: Requests, context: ServicerContext) -> Message:
        async with authenticated_call(service, context, called.path, operation.scopes) as caller:
            if operation.scopes is not None or await is_identified(service, context):
                data = await read_one(requests)
            else:
                data = require_message(await unidentified.read(requests))
            request = request_of(operation.request, parse(called.request, data))
            key = None if operation.idempotent else metadata(context, "idempotency-key")
            return message_of(called.reply, await service.perform(caller, operation, request, key))

    return answer


def _stream(service: Service, operation: ServiceOperation, called: Rpc) -> Stream:
    verb = service.verb(operation)

    async def stream(requests: Requests, context: ServicerContext) -> None:
        async with authenticated_call(service, context, called.path, operation.scopes) as caller:
            request = request_of(operation.request, parse(called.request, await read_one(requests)))
            # aclosing: if the peer disconnects during a write, the generator must not wait for garbage collection.
            service.followers.check_room()
            async with service.followers.while_valid(caller, follows=True), aclosing(verb(caller, request)) as replies:
                async for reply in replies:
                    await context.write(message_of(called.reply, reply))

    return stream
