"""The two rpcs that stream bytes: the file of an artifact, and a session's diff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from grpc.aio import ServicerContext

from debug_server.errors import InvalidInputError, NotFoundError
from debug_server.messages import OPERATIONS, ArtifactRef, SessionRef
from debug_server.service import Service
from debug_server.surfaces.grpc.calls import authenticated_call
from debug_server.surfaces.grpc.decoding import parse, request_of
from debug_server.surfaces.grpc.schema import rpc
from debug_server.surfaces.grpc.unidentified import Requests, read_one
from debug_server.surfaces.grpc.v1.debug_server_pb2 import (
    Chunk,
    FetchArtifactRequest,
    FetchDiffRequest,
    GetArtifactRequest,
)

CHUNK_BYTES = 1 << 18

Stream = Callable[[Requests, ServicerContext], Awaitable[None]]


def fetch_artifact(service: Service) -> Stream:
    """The bytes of an artifact from an offset; past the end there are none."""
    path, scopes = rpc("FetchArtifact").path, OPERATIONS["get_artifact"].scopes

    async def fetch(requests: Requests, context: ServicerContext) -> None:
        async with authenticated_call(service, context, path, scopes) as caller:
            asked = parse(FetchArtifactRequest, await read_one(requests))
            if asked.offset < 0:
                raise InvalidInputError(f"offset {asked.offset} is negative: start at 0")
            wanted = GetArtifactRequest(session_id=asked.session_id, artifact_id=asked.artifact_id)
            await _send_file(
                context, await service.artifacts.path(caller, request_of(ArtifactRef, wanted)), asked.offset
            )

    return fetch


async def _send_file(context: ServicerContext, path: Path, offset: int) -> None:
    with await asyncio.to_thread(_open, path, offset) as file:
        while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
            await context.write(Chunk(offset=offset, data=piece))
            offset += len(piece)


def _open(path: Path, offset: int) -> BinaryIO:
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError as error:
        raise NotFoundError(f"the file {path.name} of the artifact is gone") from error
    file.seek(offset)
    return file


def fetch_diff(service: Service) -> Stream:
    """A session's diff, byte for byte."""
    path, scopes = rpc("FetchDiff").path, OPERATIONS["diff_session"].scopes

    async def fetch(requests: Requests, context: ServicerContext) -> None:
        async with authenticated_call(service, context, path, scopes) as caller:
            asked = request_of(SessionRef, parse(FetchDiffRequest, await read_one(requests)))
            patch = await service.sessions.diff_bytes(caller, asked)
            for offset in range(0, len(patch), CHUNK_BYTES):
                await context.write(Chunk(offset=offset, data=patch[offset : offset + CHUNK_BYTES]))

    return fetch
