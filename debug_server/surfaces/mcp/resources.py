"""Logs and artifacts as resources; the URI of a log may have an offset, because one answer has a limited size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp import types
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.shared.uri_template import UriTemplate

from debug_server import messages as m
from debug_server.errors import NotFoundError, PayloadTooLargeError
from debug_server.surfaces.mcp.artifacts import locate, read_bytes
from debug_server.surfaces.mcp.calls import Call, decoded

_LOG_BYTES = 1 << 18
_ARTIFACT_BYTES = 8 << 20

Read = Callable[[Call, Mapping[str, Any]], Awaitable[ReadResourceContents]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of address."""

    template: UriTemplate
    name: str
    description: str
    mime_type: str | None
    read: Read

    def described(self) -> types.ResourceTemplate:
        """As the protocol lists it."""
        return types.ResourceTemplate(
            uri_template=self.template.template,
            name=self.name,
            description=self.description,
            mime_type=self.mime_type,
        )


async def _log(call: Call, values: Mapping[str, Any]) -> ReadResourceContents:
    request: m.ReadLogText = decoded(m.ReadLogText, {"limit": _LOG_BYTES, **values}, of="the address of a log")
    part = await call.perform("read_log_text", request)
    assert isinstance(part, m.LogText)
    meta = part.model_dump(include={"offset", "next_offset", "log_bytes", "ended"})
    return ReadResourceContents(content=part.text, mime_type="text/plain", meta=meta)


async def _artifact(call: Call, values: Mapping[str, Any]) -> ReadResourceContents:
    call.require("get_artifact")
    request: m.ArtifactRef = decoded(m.ArtifactRef, values, of="the address of an artifact")
    artifact, path = await locate(call, request.session_id, request.artifact_id)
    data, size = await asyncio.to_thread(read_bytes, path, 0, _ARTIFACT_BYTES)
    if size > len(data):
        raise PayloadTooLargeError(
            f"artifact {artifact.id} has {size} bytes, more than one answer's {_ARTIFACT_BYTES}: use read_artifact"
        )
    kind = artifact.content_type or "application/octet-stream"
    try:
        return ReadResourceContents(content=data.decode(), mime_type=kind)
    except UnicodeDecodeError:
        return ReadResourceContents(content=data, mime_type=kind)


RESOURCES = (
    Resource(
        template=UriTemplate.parse("debug-server://commands/{command_id}/log{?offset,limit}"),
        name="command_log",
        description=f"A command's log, up to {_LOG_BYTES} bytes from an offset; the next one is `_meta.next_offset`.",
        mime_type="text/plain",
        read=_log,
    ),
    Resource(
        template=UriTemplate.parse("debug-server://sessions/{session_id}/artifacts/{artifact_id}"),
        name="artifact",
        description="A file kept from a command.",
        mime_type=None,
        read=_artifact,
    ),
)


async def read(call: Call, uri: str) -> ReadResourceContents:
    """Read the resource with this URI; NotFoundError if no template matches."""
    for resource in RESOURCES:
        values = resource.template.match(uri)
        if values is not None:
            return await resource.read(call, values)
    known = " and ".join(item.template.template for item in RESOURCES)
    raise NotFoundError(f"unknown resource {uri[:200]!r}: use {known}")


def links(reply: m.Reply) -> list[types.ResourceLink]:
    """Links to the artifacts of a list."""
    return [
        types.ResourceLink(
            uri=f"debug-server://sessions/{item.session_id}/artifacts/{item.id}",
            name=item.name,
            mime_type=item.content_type,
            size=item.size,
        )
        for item in (reply.items if isinstance(reply, m.ArtifactList) else ())
    ]
