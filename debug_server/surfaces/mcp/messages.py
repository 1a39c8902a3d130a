"""Arguments and results of the tools that combine operations for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from debug_server import messages as m
from debug_server.messages.digest import DEFAULT_TOKENS

WaitSeconds = Annotated[
    float,
    Field(gt=0, le=3600, description="Return after this time even if the command still runs; it continues."),
]


class RunArguments(m.StartRun):
    """A one-shot run, how long to wait for it, and the size of the digest."""

    wait_seconds: WaitSeconds = 600.0
    max_tokens: m.MaxTokens = DEFAULT_TOKENS


class WaitArguments(m.CommandRef):
    """A command, how long to wait for it, and the size of the digest."""

    wait_seconds: WaitSeconds = 600.0
    max_tokens: m.MaxTokens = DEFAULT_TOKENS


class SessionLogsArguments(m.SessionRef):
    """A session, how many of its last commands, and the size of each digest."""

    limit: Annotated[int, Field(ge=1, le=20, description="How many commands.")] = 3
    max_tokens: m.MaxTokens = DEFAULT_TOKENS


class CommandDigest(m.Reply):
    """A command and the digest of its log; without the right to read logs there is no digest."""

    command: m.CommandReply
    digest: m.Digest | None


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
