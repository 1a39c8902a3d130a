"""Who was admitted over HTTP: the caller, the request's id and the toolsets, kept in the request's ASGI scope.

``http`` writes them before it loads the SDK; ``server`` and ``calls`` read them behind it.
"""

from __future__ import annotations

from starlette.types import Scope

from debug_server.service import Caller
from debug_server.surfaces.mcp.toolsets import Toolsets

# The keys in the scope.
_CALLER, _REQUEST_ID, _TOOLSETS = "debug_server.caller", "debug_server.request_id", "debug_server.toolsets"


def admit(scope: Scope, caller: Caller, request_id: str | None, toolsets: Toolsets) -> Scope:
    """The scope of a request whose caller is authenticated."""
    return {**scope, _CALLER: caller, _REQUEST_ID: request_id, _TOOLSETS: toolsets}


def admitted(scope: Scope) -> Caller | None:
    """The authenticated caller of a request."""
    caller = scope.get(_CALLER)
    return caller if isinstance(caller, Caller) else None


def request_id_of(scope: Scope) -> str | None:
    """The id of the request in the audit record."""
    found = scope.get(_REQUEST_ID)
    return found if isinstance(found, str) else None


def toolsets_of(scope: Scope) -> Toolsets | None:
    """The toolsets that the request's address names."""
    found = scope.get(_TOOLSETS)
    return found if isinstance(found, frozenset) else None
