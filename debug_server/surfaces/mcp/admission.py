"""Who was admitted over HTTP: the caller and the request's id, kept in the request's ASGI scope.

``http`` writes them before it loads the SDK; ``server`` and ``calls`` read them behind it.
"""

from __future__ import annotations

from starlette.types import Scope

from debug_server.service import Caller

_CALLER, _REQUEST_ID = "debug_server.caller", "debug_server.request_id"  # the keys in the scope


def admit(scope: Scope, caller: Caller, request_id: str | None) -> Scope:
    """The scope of a request whose caller is authenticated."""
    return {**scope, _CALLER: caller, _REQUEST_ID: request_id}


def admitted(scope: Scope) -> Caller | None:
    """The authenticated caller of a request."""
    caller = scope.get(_CALLER)
    return caller if isinstance(caller, Caller) else None


def request_id_of(scope: Scope) -> str | None:
    """The id of the request in the audit record."""
    found = scope.get(_REQUEST_ID)
    return found if isinstance(found, str) else None
