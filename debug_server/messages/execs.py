"""Exec: one request that runs a command, waits for its end and answers with its output."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema, field_serializer, model_validator

from debug_server.messages.base import (
    COMMIT,
    DEFAULT_COMMIT,
    EXTRAS,
    GROUPS,
    MANIFESTS,
    PATCH,
    PATCH_BASE64,
    PYTHON,
    Base64,
    CommitRequest,
    DependencyNames,
    Identifier,
    Metadata,
    Reply,
    Text,
)
from debug_server.messages.commands import CommandRequest, StartRun
from debug_server.messages.digest import Digest

DEFAULT_OUTPUT_BYTES = 1 << 16
MAX_OUTPUT_BYTES = 8 << 20  # of each end of each stream: an answer is held in memory
MAX_WAIT = 3600.0
DEFAULT_WAIT = 50.0  # seconds: many proxies cut a request that is not answered within a minute
DEFAULT_STREAM_WAIT = MAX_WAIT  # heartbeats keep a stream open
Encoding = Literal["utf-8", "base64"]
# Bytes, which JSON carries as text, or as base64 if they are not UTF-8.
_Data = Annotated[bytes, WithJsonSchema({"type": "string"})]
_ANSWER_FIELDS = ("wait", "on_disconnect", "output_bytes", "merged", "digest")
_WORKSPACE_FIELDS = ("commit_sha", "patch", "patch_base64", "manifests", "python", "extras", "groups")


class ExecCommand(CommandRequest, CommitRequest):
    """Run a command and wait for its end: in a session, in a new workspace, or in a new empty folder."""

    session_id: Annotated[
        Identifier | None, Field(description="The session to run in; default: one of its own, closed at the end.")
    ] = None
    repository: Annotated[
        str | None, Field(min_length=1, max_length=128, description="Without a session: whose workspace to run in.")
    ] = None  # None: in an empty folder
    commit_sha: Annotated[str, COMMIT] = DEFAULT_COMMIT
    patch: Annotated[str | None, PATCH] = None
    patch_base64: Annotated[Base64 | None, PATCH_BASE64] = None
    manifests: Annotated[list[Text], MANIFESTS] = Field(default_factory=list)
    python: Annotated[str | None, PYTHON] = None
    extras: Annotated[DependencyNames, EXTRAS] = Field(default_factory=list)
    groups: Annotated[DependencyNames, GROUPS] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    timeout: Annotated[
        float | None, Field(gt=0, description="End the command after so many seconds; same as limits.wall_seconds.")
    ] = None
    wait: Annotated[
        float | None, Field(gt=0, le=MAX_WAIT, description="Answer after so many seconds; the command then continues.")
    ] = None
    on_disconnect: Annotated[
        Literal["continue", "cancel"], Field(description="What happens to the command if the caller disconnects.")
    ] = "continue"
    output_bytes: Annotated[
        int, Field(ge=0, le=MAX_OUTPUT_BYTES, description="Most bytes of the start and of the end of each stream.")
    ] = DEFAULT_OUTPUT_BYTES
    merged: Annotated[bool, Field(description="Also answer with both streams in the order of writing.")] = False
    digest: Annotated[bool, Field(description="Also answer with a digest of the log.")] = False

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        """Refuse what belongs to another place than the one that was chosen."""
        given = self.model_fields_set
        if self.session_id is not None and (others := given & {"repository", "metadata", *_WORKSPACE_FIELDS}):
            raise ValueError(f"{min(others)} belongs to a session of its own: leave it out, or leave session_id out")
        if self.session_id is None and self.repository is None and (others := given & set(_WORKSPACE_FIELDS)):
            raise ValueError(f"{min(others)} needs a repository: name one, or leave it out")
        return self

    @model_validator(mode="after")
    def _check_timeout(self) -> Self:
        if self.timeout is not None and self.limits.wall_seconds is not None:
            raise ValueError("timeout is another name for limits.wall_seconds: give one of them")
        return self

    def without_wait(self) -> ExecCommand:
        """The same command, whatever its answer is to have: what an idempotency key stands for."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in _ANSWER_FIELDS})

    def as_run(self) -> StartRun:
        """The same command as a run in a workspace of the repository."""
        fields = {name: getattr(self, name) for name in StartRun.model_fields}
        if self.timeout is not None:
            fields["limits"] = self.limits.model_copy(update={"wall_seconds": self.timeout})
        return StartRun.model_construct(**fields)

    @property
    def requested_limits(self) -> dict[str, Any]:
        """The limits that are not left out; ``timeout`` is one of them."""
        limits = super().requested_limits
        return limits if self.timeout is None else {**limits, "wall_seconds": self.timeout}


class Begun(Reply):
    """A command that was queued or started."""

    command_id: int
    session_id: int


class LeftOut(Reply):
    """A part of a stream that the answer leaves out: how many bytes, and the range of the log that has them."""

    stream: str  # stdout, stderr, or merged
    bytes: int
    start: int
    end: int


class OutputPiece(Reply):
    """Bytes of one stream at one offset of the log."""

    offset: int
    stream: str
    data: _Data
    encoding: Encoding

    @field_serializer("data", when_used="json")
    def _encode(self, data: bytes) -> str:
        return encoded(data, self.encoding)

    @model_validator(mode="before")
    @classmethod
    def _decode(cls, given: Any) -> Any:
        return decoded(given, {"data": "encoding"})


class ExecReply(Reply):
    """How a command ended, and its output. While it still runs, ``ended`` is False and the output is what there is."""

    command_id: int
    session_id: int
    status: str
    ended: bool
    exit_code: int | None
    exit_reason: str | None
    message: str | None  # why it ended, if it did not exit by itself
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    queued_seconds: float | None  # from the request to the start; None before
    wall_seconds: float | None
    cpu_seconds: float | None
    stdout: _Data  # all of it, or its first bytes
    stderr: _Data
    stdout_tail: _Data  # the last bytes, if the middle is left out
    stderr_tail: _Data
    stdout_encoding: Encoding
    stderr_encoding: Encoding
    stdout_bytes: int  # the full size
    stderr_bytes: int
    log_bytes: int
    merged: list[OutputPiece] | None  # in the order in which it was written; None if it was not requested
    left_out: list[LeftOut]
    digest: Digest | None = None  # of the whole log; None if it was not requested

    @field_serializer("stdout", "stdout_tail", when_used="json")
    def _encode_stdout(self, data: bytes) -> str:
        return encoded(data, self.stdout_encoding)

    @field_serializer("stderr", "stderr_tail", when_used="json")
    def _encode_stderr(self, data: bytes) -> str:
        return encoded(data, self.stderr_encoding)

    @model_validator(mode="before")
    @classmethod
    def _decode(cls, given: Any) -> Any:
        streams = {f"{stream}{end}": f"{stream}_encoding" for stream in ("stdout", "stderr") for end in ("", "_tail")}
        return decoded(given, streams)


def encoding_of(*parts: bytes) -> Encoding:
    """The encoding in which JSON carries these bytes: utf-8 if all of them are that."""
    try:
        for part in parts:
            part.decode()
    except UnicodeDecodeError:
        return "base64"
    return "utf-8"


def encoded(data: bytes, encoding: Encoding) -> str:
    """Bytes as text."""
    return data.decode() if encoding == "utf-8" else base64.b64encode(data).decode()


def decoded(given: Any, encodings: dict[str, str]) -> Any:
    """The fields of a decoded JSON object, with base64 text as bytes; ``encodings``: name -> name of its encoding."""
    if not isinstance(given, dict):
        return given
    fields = dict(given)
    for name, encoding in encodings.items():
        if fields.get(encoding) == "base64" and isinstance(text := fields.get(name), str):
            fields[name] = base64.b64decode(text)
    return fields
