"""Logs, artifacts and events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from debug_server.messages.base import CommandId, Identifier, Items, PageRequest, Reply, Request, SessionId
from debug_server.messages.commands import CommandRef
from debug_server.messages.digest import Excerpt
from debug_server.messages.sessions import SessionRef


class ReadLog(CommandRef):
    """Request for bytes of a log from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Byte to start at.")] = 0
    limit: Annotated[int, Field(ge=1, le=8 << 20, description="Most bytes.")] = 1 << 16


class FollowLog(CommandRef):
    """Request for a log from an offset until the command has ended."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Byte to start at.")] = 0


class FollowSession(SessionRef):
    """The logs of all of a session's commands as one, from an offset."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Byte to start at.")] = 0


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


class ReadLogText(CommandRef):
    """Request for a part of a log as text: from an offset, the last lines, or the lines that match a pattern."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Byte to start at, such as an offset from a digest.")] = 0
    tail: Annotated[
        int | None, Field(ge=1, le=100_000, description="Start at this many last lines instead of at offset.")
    ] = None
    grep: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1000,
            description="Only lines that match this regular expression (RE2 syntax), from the start on.",
        ),
    ] = None
    ignore_case: Annotated[bool, Field(description="Whether grep ignores case.")] = False
    context: Annotated[int, Field(ge=0, le=20, description="Lines to add before and after each match.")] = 0
    max_matches: Annotated[int, Field(ge=1, le=1000, description="Most lines that grep finds.")] = 50
    limit: Annotated[int, Field(ge=1, le=1 << 20, description="Most bytes of the log in the answer.")] = 1 << 14
    encoding: Annotated[
        Literal["utf-8", "base64"], Field(description="base64: the exact bytes, also where they are no UTF-8.")
    ] = "utf-8"


class LogMatch(Excerpt):
    """A line that matches, and the lines around it that are not part of another match."""

    before: list[str]
    after: list[str]


class LogText(Reply):
    """A part of a log as text; ``next_offset`` is the offset of the next read."""

    command_id: int
    offset: int
    next_offset: int
    log_bytes: int
    ended: bool  # the command has ended and nothing follows
    text: str  # with ``encoding`` base64, the bytes as base64
    exact: bool  # false if bytes that are no UTF-8 were replaced: base64 has them
    skipped_bytes: int  # of the last lines, before ``offset``: they did not fit into ``limit``
    matches: list[LogMatch]  # with grep, instead of the text


class ArtifactRef(Request):
    """One artifact."""

    session_id: SessionId
    artifact_id: Annotated[Identifier, Field(description="The artifact's id.")]


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

    session_id: SessionId | None = None
    command_id: CommandId | None = None
    kind: Annotated[str | None, Field(max_length=128, description="Only events of this kind.")] = None


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
