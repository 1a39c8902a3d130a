"""Fetches with a bound on the processes of its user: a folder, a remote, a user without any process, then the bounds.

Prints for each bound the class and the words of what was raised.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path

from debug_server.errors import DebugServerError
from debug_server.worktrees.mirror import Mirror
from tests.engine.exhausted_program import give_up_exceeding

_SET_SECUREBITS, _NO_SETUID_FIXUP = 28, 4


def begin(uid: int, arguments: list[str]) -> None:
    """Once more as a user whose processes are counted."""
    give_up_exceeding()
    # access(2), by which git finds its files, asks for the real user's rights: let those be root's as well.
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    os.setresuid(uid, 0, 0)
    os.execv(sys.executable, [sys.executable, "-m", "tests.worktrees.programs.few_processes", *arguments])


def main(folder: Path, remote: str, bounds: list[int]) -> None:
    """The same mirror under each bound."""
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    told = []
    for bound in bounds:
        resource.setrlimit(resource.RLIMIT_NPROC, (bound, most))
        try:
            Mirror(folder / "repo.bare", remote).resolve("HEAD")
        except DebugServerError as error:
            told.append([type(error).__name__, str(error)])
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    if os.getuid() == 0:
        begin(int(sys.argv[3]), [*sys.argv[1:3], *sys.argv[4:]])
    main(Path(sys.argv[1]), sys.argv[2], [int(bound) for bound in sys.argv[3:]])
