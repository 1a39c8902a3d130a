"""The SDK: every verb of the service over HTTP, in a blocking and an asynchronous client.

Imported by surfaces and by users' programs; imports the messages, the model, the errors, the settings, ``sockets``
and ``disk``, never the service. The clients are loaded on first use, so that a program that only needs values does not
load an HTTP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from debug_server.client.aio import AsyncDebugServerClient
    from debug_server.client.sync import DebugServerClient

__all__ = ["AsyncDebugServerClient", "DebugServerClient"]


def __getattr__(name: str) -> object:
    if name == "DebugServerClient":
        from debug_server.client.sync import DebugServerClient

        return DebugServerClient
    if name == "AsyncDebugServerClient":
        from debug_server.client.aio import AsyncDebugServerClient

        return AsyncDebugServerClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
