"""The values of a command's spec that the store keeps when the command is queued."""

from __future__ import annotations

from typing import Any

from debug_server.model import CommandSpec
from debug_server.runner.settings import RunnerSettings


def spec_columns(spec: CommandSpec, settings: RunnerSettings) -> dict[str, Any]:
    """What the store keeps of a spec."""
    return {
        "argv": spec.argv,
        "cwd": str(spec.cwd) if spec.cwd is not None else None,
        "env": spec.env,
        "log_name": spec.log_name,
        "limits": spec.within(settings.limits).bounds,
        "stdin_text": spec.stdin_text,
        "tty": spec.tty,
        "max_pending": settings.max_pending,
    }
