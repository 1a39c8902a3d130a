"""The composition root: settings in, wired parts out; the only package that sees all layers.

``local`` wires the parts of one machine, ``parts`` those of the server, ``server`` and ``asgi`` serve them, and
``programs`` starts what the command lines name. Above it are entry points alone: ``__main__``, ``api.main``,
``runner.supervisor`` and ``worktrees.inspect``. ``Local`` is loaded on first use: ``--help`` needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.app.local import Local

__all__ = ["Local"]


def __getattr__(name: str) -> Any:
    if name != "Local":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from debug_server.app.local import Local

    return Local
