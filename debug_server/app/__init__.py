"""The composition root: builds every part from the settings; the only package that imports all layers.

``local`` builds the parts of one machine, ``parts`` those of the server; ``server`` and ``asgi`` serve them, and
``programs`` has the programs of the command lines. Only entry points import it: ``__main__``, ``api.main``,
``runner.supervisor`` and ``worktrees.inspect``. ``Local`` is loaded on first use, because ``--help`` does not need it.
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
