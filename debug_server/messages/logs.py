"""Logs, artifacts and events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from debug_server.messages.base import Identifier, Items, PageRequest, Reply, Request
from debug_server.messages.commands import CommandRef
from debug_server.messages.sessions import SessionRef


class ReadLog(CommandRef):
    """Request for bytes of a log from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=8 << 20)] = 1 << 16


class FollowLog(CommandRef):
    """Request for a log from an offset until the command has ended."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class FollowSession(SessionRef):
    """The logs of all of a session's commands as one, from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class LogPiece(Reply):
    """Bytes of one stream at one offset."""

    offset: int
    stream: str
    data: bytes
    timestamp: datetime
    command_id: int

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.offset + len(self.data)


class LogPage(Reply):
    """The pieces that were read, and the offset of the next read."""

    pieces: list[LogPiece]
    next_offset: int
    ended: bool


class ArtifactRef(Request):
    """One artifact."""

    session_id: Identifier
    artifact_id: Identifier


class ArtifactReply(Reply):
    """A file kept from a command."""

    id: int
    session_id: int
    command_id: int | None
    kind: str
    name: str
    size: int | None
    sha256: str | None
    content_type: str | None
    created_at: datetime


class ArtifactList(Items[ArtifactReply]):
    """A page of a session's artifacts."""


class ReadEvents(PageRequest):
    """Events after a cursor."""

    session_id: Identifier | None = None
    command_id: Identifier | None = None
    kind: Annotated[str, Field(max_length=128)] | None = None


class EventReply(Reply):
    """A durable, numbered fact."""

    seq: int
    kind: str
    session_id: int | None
    command_id: int | None
    subject: str | None
    data: dict[str, Any]
    created_at: datetime


class EventList(Items[EventReply]):
    """A page of events."""

    next_after: int
