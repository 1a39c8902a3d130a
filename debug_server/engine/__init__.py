"""Runs commands from the queue or in the foreground, and maintains sessions and workspaces.

Imported by ``service`` and ``app``. ``local`` runs the queue in one process on one machine; a distributed engine would
replace that module only. Exports are loaded on first use because a run in the foreground needs no queue.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.engine.local import LocalEngine
    from debug_server.engine.sessions import Sessions
    from debug_server.engine.workspace import SessionWorkspace, session_workspace

_HOMES = {
    "LocalEngine": "local",
    "SessionWorkspace": "workspace",
    "Sessions": "sessions",
    "session_workspace": "workspace",
}

__all__ = ["LocalEngine", "SessionWorkspace", "Sessions", "session_workspace"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
