"""The verbs that every surface calls, as the table of operations in ``messages`` lists them.

Imported by surfaces, ``dispatch``, ``tasks`` and ``app``. The layers above are asynchronous, the layers below blocking:
only this package calls the store and the engine in threads. Exports are loaded on first use, because a foreground run
does not need the messages and the operations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.service.caller import LOCAL, Caller
    from debug_server.service.errors_table import ERRORS, ErrorMapping, mapping_of
    from debug_server.service.service import Service

_HOMES = {
    "ERRORS": "errors_table",
    "LOCAL": "caller",
    "Caller": "caller",
    "ErrorMapping": "errors_table",
    "Service": "service",
    "mapping_of": "errors_table",
}

__all__ = ["ERRORS", "LOCAL", "Caller", "ErrorMapping", "Service", "mapping_of"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
