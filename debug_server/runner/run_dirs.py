"""Run directories that nobody needs any more."""

from __future__ import annotations

import contextlib
import errno
import re
from pathlib import Path

from debug_server.runner.keeper.linux import is_alive

_BETWEEN = re.compile(r"\.(?:keeper|fence)-(\d+)-(\d+)")
_REMOVE_PASSES = 100


def remove_run_dir(run_dir: Path) -> None:
    """Remove a finished attempt's files; what cannot be removed now is left for the next recovery.

    A keeper that could not write its record for want of space tries again and again, perhaps between our last unlink
    and the rmdir; once the directory is gone it gives up.
    """
    with contextlib.suppress(OSError):
        for _ in range(_REMOVE_PASSES):
            for path in run_dir.iterdir():
                path.unlink(missing_ok=True)
            try:
                run_dir.rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return


def half_made(path: Path) -> bool:
    """Whether this is a keeper's or a fence's directory between two names, and its process lives."""
    found = _BETWEEN.match(path.name)
    return found is not None and is_alive(int(found[1]), int(found[2]))
