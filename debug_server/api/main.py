"""``app`` and ``create_app`` under the name that deployments know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from debug_server.app import asgi
from debug_server.app.asgi import create_app

if TYPE_CHECKING:
    from debug_server.surfaces.http import HttpApp

__all__ = ["app", "create_app"]  # noqa: F822 - app is made when it is asked for


def __getattr__(name: str) -> HttpApp:
    if name == "app":
        return asgi.default_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
