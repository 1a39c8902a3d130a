"""What every executor has in common: the port, the plan it makes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from debug_server.errors import InvalidInputError
from debug_server.tasks.models import RunnerSubmit
from debug_server.tasks.template import VARIABLES

HANDOFF = "HOST_RUNNER_HANDOFF_CONTEXT"
_MAX_STRING = 131_072  # of one NAME=VALUE and its final NUL, to the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A task's command."""

    executor: str
    argv: Sequence[str]
    env: Mapping[str, str]
    stdin_text: str | None = None
    pre_kill: Sequence[str] = ()  # beside the tree, before it is ended
    containers: bool = False  # it makes containers, and control groups for them
    after: tuple[str, ...] = ()  # a program to run when the task is over
    metadata: Mapping[str, Any] = field(default_factory=dict)  # more of its session's


class Executor(Protocol):
    """A way to do a task."""

    def plan(self, submit: RunnerSubmit) -> Plan:
        """The command; InvalidInputError naming the field that it cannot carry."""


def variables(submit: RunnerSubmit, *, prompt: bool) -> dict[str, str]:
    """The task as variables; one that is too long is refused by the name of its field."""
    found = {VARIABLES["task_id"]: submit.task_id, VARIABLES["run_id"]: submit.run_id}
    if prompt:
        found[VARIABLES["prompt"]] = fits(submit.prompt, VARIABLES["prompt"], field="prompt")
    if submit.handoff_context:
        text = json.dumps(submit.handoff_context, ensure_ascii=False)
        found[HANDOFF] = fits(text, HANDOFF, field="handoff_context")
    return found


def fits(text: str, name: str, *, field: str) -> str:
    """The text, if a variable of that name can hold it."""
    limit = _MAX_STRING - len(name) - 2
    if (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
        raise InvalidInputError(
            f"{field}: has {size} bytes, and this executor can carry {limit} (one environment variable): shorten it",
            field=field,
        )
    if "\0" in text:
        raise InvalidInputError(f"{field}: holds a NUL character, which no program can receive", field=field)
    return text


def passed_on(names: Sequence[str]) -> dict[str, str]:
    """Those of our own variables that a program needs to reach its service."""
    return {name: os.environ[name] for name in names if name in os.environ}
