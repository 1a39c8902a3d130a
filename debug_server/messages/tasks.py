"""Requests and replies of host tasks."""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, computed_field
from pydantic_core import PydanticCustomError

from debug_server.messages.base import Items, ListRequest, Reply, Request

MAX_PROMPT_BYTES = 1 << 20
_MAX_TEXT = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f/]")
_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_HOST = re.compile(rb"[A-Za-z0-9._:%~-]+")


class TaskStatus(StrEnum):
    """The status of a task."""

    QUEUED = "queued"
    RUNNING = "running"  # from its start until its processes have ended and its workspace is cleaned up
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"


class ExecutionMode(StrEnum):
    """Where a task runs."""

    NO_WORKSPACE = "no-workspace"  # in a new empty folder
    SHARED_WORKSPACE = "shared-workspace"  # in the project, with exclusive use of the named paths
    ISOLATED_WORKTREE = "isolated-worktree"  # in its own worktree, on a branch
    DOCKER_SANDBOX = "docker-sandbox"  # in a container


def _clean(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("must not contain a lone surrogate") from error
    return value


def _identifier(value: str) -> str:
    if _CONTROL.search(value) or value in (".", ".."):
        raise ValueError("must not contain slashes or control characters, and must not be '.' or '..'")
    return _clean(value)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must be an absolute path")
    if ".." in PurePosixPath(value).parts:
        raise ValueError("must not contain '..'")
    return _clean(value)


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("must be an http or https URL with a host")
    if parts.username or parts.password:
        raise ValueError("must not contain a user or a password: use status_callback_token")
    try:
        host = parts.hostname.encode("idna")
    except UnicodeError:
        host = b""
    if not _HOST.fullmatch(host):
        raise ValueError("must have a valid host name")
    return _clean(value)


def _header(value: str) -> str:
    if not _HEADER.fullmatch(value):
        raise ValueError("must be printable ASCII without leading or trailing blanks: it is sent as a header")
    return value


def _word(value: str) -> str:
    if value.startswith("-"):
        raise ValueError("must not begin with '-', which would make it an option")
    return _clean(value)


def _prompt(value: str) -> str:
    if len(_clean(value).encode()) > MAX_PROMPT_BYTES:
        raise ValueError(f"must have at most {MAX_PROMPT_BYTES} bytes")
    return value


def _mode(value: object) -> object:
    known = [mode.value for mode in ExecutionMode]
    if not isinstance(value, str) or value not in known:
        *others, last = map(repr, known)
        raise PydanticCustomError("enum", "must be {expected}", {"expected": f"{', '.join(others)} or {last}"})
    return ExecutionMode(value)


def _names(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name[:40]!r} is not a name of an environment variable")
        _clean(text)
    return value


Identifier = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_identifier)]
Text = Annotated[str, Field(max_length=_MAX_TEXT), AfterValidator(_clean)]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=_MAX_TEXT), AfterValidator(_absolute)]
Word = Annotated[str, Field(min_length=1, max_length=_MAX_TEXT), AfterValidator(_word)]


class RunnerWorkspace(Request):
    """The project that a task works on."""

    project_id: Annotated[int, Field(ge=1, le=2**62)]
    project_root: AbsolutePath
    lock_paths: Annotated[list[AbsolutePath], Field(max_length=256)] = Field(default_factory=list)
    worktree_path: AbsolutePath | None = None
    git_branch: Annotated[Word, Field(max_length=200)] | None = None


class RunnerMount(Request):
    """A directory of the host inside the container."""

    source: AbsolutePath
    target: AbsolutePath
    read_only: bool = False


class RunnerSandbox(Request):
    """The container that a task runs in."""

    image: Word
    command: Annotated[list[Annotated[str, Field(max_length=131_071), AfterValidator(_clean)]], Field(min_length=1)]
    workdir: AbsolutePath = "/workspace/project"
    env: Annotated[dict[str, str], AfterValidator(_names)] = Field(default_factory=dict)
    mounts: Annotated[list[RunnerMount], Field(max_length=64)] = Field(default_factory=list)


class RunnerSubmit(Request):
    """A new task."""

    task_id: Identifier
    run_id: Identifier
    prompt: Annotated[str, Field(min_length=1), AfterValidator(_prompt)]
    execution_mode: Annotated[ExecutionMode, BeforeValidator(_mode)] = ExecutionMode.NO_WORKSPACE
    workspace: RunnerWorkspace | None = None
    sandbox: RunnerSandbox | None = None
    status_callback_url: Annotated[str, Field(max_length=_MAX_TEXT), AfterValidator(_url)] | None = None
    status_callback_token: Annotated[str, Field(min_length=1, max_length=_MAX_TEXT), AfterValidator(_header)] | None = (
        Field(default=None, repr=False)
    )
    timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] = 600
    handoff_context: Annotated[list[Any], Field(max_length=1000)] = Field(default_factory=list)
    role_name: Text | None = None
    workspace_path: AbsolutePath | None = None


class RunnerTask(Reply):
    """A task as it is now; the fields from ``exit_reason`` on are additions."""

    task_id: str
    run_id: str
    execution_mode: str
    workspace: dict[str, Any] | None
    status: TaskStatus
    message: str
    executor: str
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    stdout: str | None  # its end
    stderr: str | None
    container_id: str | None
    worktree_cleanup_attempted: bool = False
    worktree_cleanup_succeeded: bool | None = None
    worktree_cleanup_message: str | None = None
    exit_reason: str | None = None
    exit: dict[str, Any] | None = None  # the exit record: signal, times, memory, evidence of the reason
    stdout_bytes: int | None = None  # of the whole stream; None while it is long and growing
    stderr_bytes: int | None = None
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    log_bytes: int = 0
    log_url: str  # the whole log
    command_id: int
    session_id: int
    patch_artifact_id: int | None = None  # uncommitted changes of its worktree

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated property
    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.status not in (TaskStatus.QUEUED, TaskStatus.RUNNING)


class TaskList(Items[RunnerTask]):
    """A page of tasks, oldest first, without their output."""


class TaskId(Request):
    """One task."""

    task_id: Identifier


class TaskPage(ListRequest):
    """A page of the list."""

    status: TaskStatus | None = None


class WaitTask(TaskId):
    """Wait for a task to end, for a limited time."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 30.0


class FollowTaskLog(TaskId):
    """A task's output: the offset to start at, and whether to follow it until the task has ended."""

    offset: Annotated[int, Field(ge=0, le=2**62)] = 0
    follow: bool = False
    encoding: Literal["utf-8", "base64"] = "utf-8"
