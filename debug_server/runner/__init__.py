"""One command on one machine: environment, limits, keeper, log, recovery.

Imported by ``engine`` and above. Exports are loaded on first use: the keeper's fork server imports this package and
must stay lean, and ``python -m debug_server.runner.supervisor`` must not import itself.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # the typing module alone would cost every keeper a megabyte
if TYPE_CHECKING:
    from typing import Any

    from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
    from debug_server.runner.log_stream import LogChunk, LogStream
    from debug_server.runner.settings import RunnerPaths, RunnerSettings
    from debug_server.runner.spec import CommandResult, CommandSpec
    from debug_server.runner.worker import WorkerSupervisor
    from debug_server.worktrees.patches import SessionPatch

_HOMES = {
    "CommandResult": "debug_server.runner.spec",
    "CommandSpec": "debug_server.runner.spec",
    "EnvironmentHandle": "debug_server.runner.environment",
    "EnvironmentManager": "debug_server.runner.environment",
    "EnvironmentRequest": "debug_server.runner.environment",
    "LogChunk": "debug_server.runner.log_stream",
    "LogStream": "debug_server.runner.log_stream",
    "RunnerPaths": "debug_server.runner.settings",
    "RunnerSettings": "debug_server.runner.settings",
    "SessionPatch": "debug_server.worktrees.patches",
    "WorkerSupervisor": "debug_server.runner.worker",
}

__all__ = [
    "CommandResult",
    "CommandSpec",
    "EnvironmentHandle",
    "EnvironmentManager",
    "EnvironmentRequest",
    "LogChunk",
    "LogStream",
    "RunnerPaths",
    "RunnerSettings",
    "SessionPatch",
    "WorkerSupervisor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
