"""Closes the caches of build tools to other users.

The tools open their caches' lock files to everybody. Whoever can open one can hold its lock, and each build would wait
until its deadline.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from debug_server.disk import make_private, tighten


def close_cache(tool: str, variable: str) -> None:
    """Make the tool's folder in the user's cache private; one that the user chose by ``variable`` stays as it is."""
    if os.environ.get(variable):
        return
    with suppress(OSError, RuntimeError):  # no home folder, or one that cannot be written: the tool reports it
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / tool
        if folder.is_absolute():
            make_private(folder)
            tighten(folder)
