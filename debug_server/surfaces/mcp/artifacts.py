"""The bytes of artifacts, as text where they are text."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

from debug_server import messages as m
from debug_server.service.log_text import cut_text
from debug_server.surfaces.mcp.calls import Call
from debug_server.surfaces.mcp.messages import ArtifactPart, ReadArtifactArguments


async def read_part(call: Call, request: ReadArtifactArguments) -> ArtifactPart:
    """Some bytes of an artifact."""
    call.require("get_artifact")
    artifact, path = await locate(call, request.session_id, request.artifact_id)
    data, size = await asyncio.to_thread(read_bytes, path, request.offset, request.limit)
    final = request.offset + len(data) >= size
    text, used = cut_text(data, final=final)
    encoding = "utf-8"
    if "\ufffd" in text or "\0" in text:
        text, used, encoding = base64.b64encode(data).decode(), len(data), "base64"
    next_offset = request.offset + used
    return ArtifactPart(
        artifact=artifact,
        offset=request.offset,
        next_offset=None if final else next_offset,
        encoding=encoding,
        data=text,
    )


async def locate(call: Call, session_id: int, artifact_id: int) -> tuple[m.ArtifactReply, Path]:
    """An artifact and its file."""
    request = m.ArtifactRef(session_id=session_id, artifact_id=artifact_id)
    artifact = await call.service.artifacts.get(call.caller, request)
    return artifact, await call.service.artifacts.path(call.caller, request)


def read_bytes(path: Path, offset: int, limit: int) -> tuple[bytes, int]:
    """Bytes of a file, and its size."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(min(offset, size))
        return file.read(limit), size
