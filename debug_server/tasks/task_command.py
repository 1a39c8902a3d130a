"""The command of a task, and the variables that it gets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debug_server.errors import InvalidInputError
from debug_server.messages.tasks import RunnerSubmit
from debug_server.tasks.template import VARIABLES

HANDOFF = "HOST_RUNNER_HANDOFF_CONTEXT"
_MAX_VARIABLE = 131_072  # the kernel's limit on NAME=VALUE with its final NUL


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommand:
    """The command that an executor makes of a task."""

    executor: str
    argv: Sequence[str]
    env: Mapping[str, str]
    stdin_text: str | None = None
    pre_kill: Sequence[str] = ()  # run before its process tree is killed
    containers: bool = False  # it starts containers: its control groups stay writable
    after: tuple[str, ...] = ()  # run when the task is over
    metadata: Mapping[str, Any] = field(default_factory=dict)  # added to the session's metadata


def task_variables(submit: RunnerSubmit, *, prompt: bool) -> dict[str, str]:
    """The task as variables; InvalidInputError names a field whose value is too long."""
    found = {VARIABLES["task_id"]: submit.task_id, VARIABLES["run_id"]: submit.run_id}
    if prompt:
        found[VARIABLES["prompt"]] = checked_value(submit.prompt, VARIABLES["prompt"], field="prompt")
    if submit.handoff_context:
        text = json.dumps(submit.handoff_context, ensure_ascii=False)
        found[HANDOFF] = checked_value(text, HANDOFF, field="handoff_context")
    return found


def checked_value(text: str, name: str, *, field: str) -> str:
    """The text, if a variable of that name can hold it; InvalidInputError otherwise."""
    limit = _MAX_VARIABLE - len(name) - 2
    if (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
        raise InvalidInputError(
            f"{field}: has {size} bytes (limit {limit}: one environment variable): shorten it",
            field=field,
        )
    if "\0" in text:
        raise InvalidInputError(f"{field}: contains a NUL character", field=field)
    return text


def inherited(names: Sequence[str]) -> dict[str, str]:
    """Those of the named variables that the server has."""
    return {name: os.environ[name] for name in names if name in os.environ}
