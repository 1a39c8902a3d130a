"""Arguments and results of the tools that combine operations for a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from debug_server import messages as m
from debug_server.messages.digest import CHARACTERS_PER_TOKEN, DEFAULT_TOKENS

DEFAULT_WAIT = 50.0  # seconds: some clients give a call up after a minute

WaitSeconds = Annotated[
    float,
    Field(gt=0, le=3600, description="Longest wait; a command that still runs continues."),
]


# From git's line to the next file, or to the end.
_BINARY = re.compile(r"^GIT binary patch\n(?:(?!diff --git ).*\n)*", re.MULTILINE)

# Arguments of exec_command that `run` has others for.
NOT_OF_RUN = {
    "wait": "use wait_seconds",
    "output_bytes": "use max_tokens",
    "merged": "the log has both streams: use read_log",
    "digest": "the answer always has it",
    "on_disconnect": "the command continues: use cancel_command",
}


class RunArguments(m.ExecCommand):
    """A command, where to run it, how long to wait for it, and the size of the digest."""

    wait_seconds: WaitSeconds = DEFAULT_WAIT
    max_tokens: m.MaxTokens = DEFAULT_TOKENS

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: object) -> object:
        return _refuse(given, NOT_OF_RUN)


class SessionCreateArguments(m.OpenSession):
    """A session without commands, so that opening one runs nothing of the caller's."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_commands(cls, given: object) -> object:
        return _refuse(given, {"commands": "use the tool run with the session's id"})


class SessionListArguments(m.ListSessions):
    """Which sessions to list; the newest first, because that is the one an agent looks for."""

    order: Annotated[Literal["oldest", "newest"], Field(description="Which comes first.")] = "newest"


def _refuse(given: object, others: Mapping[str, str]) -> object:
    if isinstance(given, Mapping):
        for name in others.keys() & given.keys():
            raise ValueError(f"{name} is no argument of this tool: {others[name]}")
    return given


class WaitArguments(m.CommandRef):
    """A command, how long to wait for it, and the size of the digest."""

    wait_seconds: WaitSeconds = DEFAULT_WAIT
    max_tokens: m.MaxTokens = DEFAULT_TOKENS


class SessionLogsArguments(m.SessionRef):
    """A session, how many of its last commands, and the size of each digest."""

    limit: Annotated[int, Field(ge=1, le=20, description="How many commands.")] = 3
    max_tokens: Annotated[int, Field(ge=200, le=100_000, description="Most tokens of each digest.")] = 500


class DiffArguments(m.SessionRef):
    """A session, and which part of its patch."""

    offset: Annotated[int, Field(ge=0, le=2**62, description="Character to start at.")] = 0
    max_tokens: Annotated[int, Field(ge=200, le=100_000, description="Most tokens, four characters each.")] = 8000


class DiffPart(m.SessionDiff):
    """A patch, and a part of its text without the content of binary files; ``next_offset`` is null at the end."""

    text: str
    offset: int
    next_offset: int | None

    @classmethod
    def of(cls, diff: m.SessionDiff, request: DiffArguments) -> DiffPart:
        """The requested part."""
        readable = _BINARY.sub(lambda found: f"(binary content left out: {len(found[0])} characters)\n", diff.patch)
        end = request.offset + CHARACTERS_PER_TOKEN * request.max_tokens
        return cls(
            session_id=diff.session_id,
            patch=diff.patch,
            exact=diff.exact,
            patch_base64=diff.patch_base64,
            text=readable[request.offset : end],
            offset=request.offset,
            next_offset=end if end < len(readable) else None,
        )


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

    offset: Annotated[int, Field(ge=0, le=2**62, description="Byte to start at.")] = 0
    limit: Annotated[int, Field(ge=1, le=1 << 20, description="Most bytes.")] = 1 << 14


class ArtifactPart(m.Reply):
    """Bytes of an artifact as text, or as base64 if they are not text; ``next_offset`` is null at the end."""

    artifact: m.ArtifactReply
    offset: int
    next_offset: int | None
    encoding: str
    data: str
