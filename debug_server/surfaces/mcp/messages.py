"""Arguments and results of the tools that combine operations for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from debug_server import messages as m
from debug_server.service.digest import Digest, Excerpt

WaitSeconds = Annotated[
    float,
    Field(gt=0, le=3600, description="Return after this time even if the command still runs; it continues."),
]


class RunArguments(m.StartRun):
    """A one-shot run, and how long to wait for it."""

    wait_seconds: WaitSeconds = 600.0


class WaitArguments(m.CommandRef):
    """A command, and how long to wait for it."""

    wait_seconds: WaitSeconds = 600.0


class ReadLogArguments(m.CommandRef):
    """A part of a log: from an offset, the last lines, or the lines with a text."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Offset in bytes, for example one from a digest.")] = 0
    limit: Annotated[int, Field(ge=1, le=1 << 18, description="Maximum number of bytes.")] = 1 << 14
    tail: Annotated[int | None, Field(ge=1, le=5000, description="Read this many last lines; ignores offset.")] = None
    grep: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1000,
            description="Return only lines that contain this text, from offset on. `a|b`: a or b; `a.*b`: a, then b. "
            "Nothing else is special.",
        ),
    ] = None
    ignore_case: Annotated[bool, Field(description="Whether grep ignores case.")] = False
    max_matches: Annotated[int, Field(ge=1, le=500, description="Maximum number of lines that grep returns.")] = 50


class LogText(m.Reply):
    """A part of a log as text; ``next_offset`` is the offset of the next read."""

    command_id: int
    offset: int
    next_offset: int
    log_bytes: int
    ended: bool  # the command has ended and nothing follows
    text: str
    matches: list[Excerpt]  # with grep, instead of the text


class SessionLogsArguments(m.SessionRef):
    """A session, and how many of its last commands."""

    limit: Annotated[int, Field(ge=1, le=20)] = 3


class CommandDigest(m.Reply):
    """A command and the digest of its log; without the right to read logs there is no digest."""

    command: m.CommandReply
    digest: Digest | None


class SessionLogs(m.Reply):
    """The last commands of a session."""

    items: list[CommandDigest]


class RunAnswer(CommandDigest):
    """A one-shot run: its command, the digest of its log, its artifacts."""

    session_id: int
    artifacts: list[m.ArtifactReply]


class ReadArtifactArguments(m.ArtifactRef):
    """A range of bytes of an artifact."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    limit: Annotated[int, Field(ge=1, le=1 << 20, description="Maximum number of bytes.")] = 1 << 16


class ArtifactPart(m.Reply):
    """Bytes of an artifact as text, or as base64 if they are not text; ``next_offset`` is null at the end."""

    artifact: m.ArtifactReply
    offset: int
    next_offset: int | None
    encoding: str
    data: str
