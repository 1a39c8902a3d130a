"""Commands and one-shot runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, computed_field, create_model, model_validator

from debug_server.messages.base import (
    COMMIT,
    DEFAULT_COMMIT,
    EXTRAS,
    GROUPS,
    MANIFESTS,
    PATCH,
    PATCH_BASE64,
    PYTHON,
    REPOSITORY,
    SEPARATED,
    Base64,
    CommandId,
    CommitRequest,
    DependencyNames,
    Items,
    ListRequest,
    Metadata,
    Order,
    Reply,
    Request,
    SessionId,
    Text,
    fault,
    refused,
)
from debug_server.messages.sessions import SessionReply
from debug_server.model.isolation import Level, Network
from debug_server.model.limits import LIMITS, Limit
from debug_server.model.signals import signal_number
from debug_server.nearest import nearest

# Limits that have another name in the settings, where sizes have units. ``timeout`` is accepted here too.
_WALL = "wall_seconds"
_SETTINGS_NAMES = {limit.setting: limit for limit in LIMITS.values() if limit.name not in (limit.setting, _WALL)}
_TIMEOUT: dict[str, Any] = {
    "properties": {
        "timeout": {
            "anyOf": [{"type": "number"}, {"type": "null"}],
            "default": None,
            "description": "Another name for wall_seconds; give one of them.",
        }
    },
    "not": {"required": ["timeout", "wall_seconds"]},
}


def _with_timeout(schema: dict[str, Any]) -> None:
    schema["properties"] = {**schema["properties"], **_TIMEOUT["properties"]}
    schema["not"] = _TIMEOUT["not"]


def _field_of(limit: Limit) -> Any:
    kind: Any = (int if limit.unit.is_whole else float) | None
    names = AliasChoices(_WALL, "timeout") if limit.name == _WALL else None
    return (kind, Field(default=None, validation_alias=names, description=limit.description))


_LimitFields: Any = create_model(
    "_LimitFields", __base__=Request, **{name: _field_of(limit) for name, limit in LIMITS.items()}
)


class LimitsRequest(_LimitFields):  # type: ignore[misc]  # its fields are made from the table of limits
    """Limits of the whole process tree; the server's default applies to each limit that is left out."""

    model_config = ConfigDict(json_schema_extra=_with_timeout)

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: object) -> object:
        """Refuse an unknown name; the error has the right name, or all names."""
        if isinstance(given, Mapping):
            for name in given:
                if text := _fault_of(str(name), given, sorted(cls.model_fields)):
                    raise refused(cls, fault((str(name),), "limit_name", text))
        return given


def _fault_of(name: str, given: Mapping[Any, Any], known: list[str]) -> str | None:
    if name == "timeout" and "wall_seconds" in given:
        return "timeout is another name for wall_seconds: give one of them"
    if name in known or name == "timeout":
        return None
    if meant := _SETTINGS_NAMES.get(name):
        return f"in requests this limit is named {meant.name}, in {meant.unit.value}"
    if similar := nearest(name, known):
        return f"unknown limit: did you mean {similar!r}?"
    return f"unknown limit: use one of {', '.join(known)}"


class CommandRequest(Request):
    """The command to run."""

    argv: Annotated[
        list[Text],
        Field(min_length=1, max_length=10_000, description='Program and arguments; for a shell ["sh", "-c", LINE].'),
    ]
    cwd: Annotated[str | None, Field(max_length=4096, description="Folder to run in, inside the workspace.")] = None
    env: Annotated[dict[str, Text], Field(description="Variables to set.")] = Field(default_factory=dict)
    log_name: Annotated[str, Field(max_length=128, description="Start of the log file's name.")] = "command"
    limits: Annotated[LimitsRequest, Field(description="Limits of the whole process tree.")] = Field(
        default_factory=LimitsRequest
    )
    require: Annotated[
        list[str], Field(max_length=16, description="Limits and layers without which it must not run.")
    ] = Field(default_factory=list)
    isolation: Annotated[Level | None, Field(description="How it is confined.")] = None
    network: Annotated[Network | None, Field(description="What it may reach.")] = None
    secrets: Annotated[
        list[Text], Field(max_length=64, description="Names in env whose values are kept out of the log.")
    ] = Field(default_factory=list)
    artifacts: Annotated[list[Text], Field(max_length=64, description="Globs of files to keep at the end.")] = Field(
        default_factory=list
    )
    tty: Annotated[bool, Field(description="Run it in a terminal.")] = False
    stdin: Annotated[bool, Field(description="Keep stdin open for write_stdin.")] = False
    priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher ones start first.")] = 0

    @property
    def requested_limits(self) -> dict[str, Any]:
        """The limits that are not left out."""
        limits: dict[str, Any] = self.limits.model_dump(exclude_none=True)
        return limits


class SubmitCommand(CommandRequest):
    """A command for a session's queue."""

    session_id: SessionId


class CommandRef(Request):
    """One command."""

    command_id: CommandId


def _to_signal_number(given: object) -> object:
    return signal_number(given) if isinstance(given, str) else given


class SignalCommand(CommandRef):
    """A signal for a command's first process, by number or by name (``TERM`` or ``SIGTERM``)."""

    signal: Annotated[
        int,
        BeforeValidator(_to_signal_number, json_schema_input_type=int | str),
        Field(ge=1, le=64, description="Number or name, such as 15, TERM or SIGTERM."),
    ]


class WaitCommand(CommandRef):
    """Wait until the command has ended, at most ``timeout`` seconds."""

    timeout: Annotated[float, Field(gt=0, le=3600, description="Longest wait, in seconds.")] = 30.0


class WriteStdin(CommandRef):
    """Input for the command; a repeated ``write_id`` is applied once."""

    may_contain_nul = frozenset({"data"})
    write_id: Annotated[
        str, Field(min_length=1, max_length=128, description="Any text; a repeated one is applied once.")
    ]
    data: Annotated[str, Field(max_length=1 << 20, description="What to write.")] = ""
    encoding: Annotated[Literal["utf-8", "base64"], Field(description="Of data.")] = "utf-8"
    close: Annotated[bool, Field(description="Then close stdin.")] = False


class CommandReply(Reply):
    """A command, and its exit record once it has ended.

    While it waits, ``waits_for`` has the ids of the commands that must end first; it is empty if the command waits for
    a free slot of the server.
    """

    id: int
    session_id: int
    sequence: int
    command: list[str]
    cwd: str | None
    status: str
    exit_code: int | None
    exit_reason: str | None
    exit: dict[str, Any] | None
    cancel_requested: bool
    log_bytes: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waits_for: list[int] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def ended(self) -> bool:
        """Whether it has reached its one terminal state."""
        return self.status not in ("pending", "running")


class CommandList(Items[CommandReply]):
    """A page of a session's commands, by sequence."""


class FoundCommand(CommandReply):
    """A command, and where it runs."""

    repository: str | None  # by name
    directory: str | None  # of a run in a directory of the server's machine
    requested_by: str | None
    subject: str | None  # what asked for it, such as a host task


class FoundCommandList(Items[FoundCommand]):
    """A page of commands of several sessions."""


# ``active`` is pending or running; ``ended`` is succeeded, failed or cancelled.
FindStatus = Literal["pending", "running", "succeeded", "failed", "cancelled", "active", "ended"]


class FindCommands(ListRequest):
    """Which commands to find, over all sessions that the caller may see; the newest first."""

    order: Annotated[Order, Field(description="Which comes first.")] = "newest"
    status: Annotated[
        list[FindStatus], SEPARATED, Field(max_length=16, description="Only commands in one of these states.")
    ] = Field(default_factory=list)
    repository: Annotated[str | None, REPOSITORY] = None
    session_id: SessionId | None = None


class RerunCommand(CommandRef):
    """An earlier command to run again; ``env`` has the values of its variables, which are not kept after its end."""

    env: Annotated[dict[str, Text], Field(description="Values of its variables, which are not kept.")] = Field(
        default_factory=dict
    )


class SessionListRequest(ListRequest):
    """Request for a page of a list of one session."""

    session_id: SessionId


class StartRun(CommandRequest, CommitRequest):
    """Open a session, run a command and close the session, in one request."""

    repository: Annotated[str, REPOSITORY]
    commit_sha: Annotated[str, COMMIT] = DEFAULT_COMMIT
    patch: Annotated[str | None, PATCH] = None
    patch_base64: Annotated[Base64 | None, PATCH_BASE64] = None
    manifests: Annotated[list[Text], MANIFESTS] = Field(default_factory=list)
    python: Annotated[str | None, PYTHON] = None
    extras: Annotated[DependencyNames, EXTRAS] = Field(default_factory=list)
    groups: Annotated[DependencyNames, GROUPS] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)


class RunReply(Reply):
    """The session and the command of a run."""

    session: SessionReply
    command: CommandReply
