"""Remembers in which folders nothing was found to install, so that they are not searched for each command.

To search a large repository without a project takes longer than most commands. A remembered answer holds until a name
in the root or in a folder for requirements or tests changes, or a file that may declare a project.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from debug_server.runner.environments.detection import Detection, detect_project

_MOST = 1000  # roots
_SETTLED_NS = 1_000_000_000
_WATCHED = (
    *("", "requirements", "reqs", "requires", "ci", "tests", "test", "testing", "src", "src/tests"),
    *("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "tox.toml", "Pipfile", "environment.yml"),
    "environment.yaml",
)

_State = tuple[tuple[int, ...] | None, ...]


class SearchedRoots:
    """The roots of projects that this process has searched; safe to share between threads."""

    def __init__(self) -> None:
        self._empty: dict[str, tuple[_State, Detection]] = {}

    def detect(self, root: Path) -> Detection:
        """``detect_project(root)``, or its last answer if that was empty and still holds."""
        path, state = os.fspath(root), _state(os.fspath(root))
        known = self._empty.get(path)
        if known is not None and known[0] == state:
            return known[1]
        found = detect_project(root)
        if not found and _is_settled(state):
            if len(self._empty) >= _MOST:
                self._empty.clear()
            self._empty[path] = state, found
        return found


def _state(root: str) -> _State:
    """Taken before the search: what changes meanwhile makes the next command search again."""
    return tuple(_stamp(f"{root}/{name}") for name in _WATCHED)


def _is_settled(state: _State) -> bool:
    """Whether a later change cannot have the times of the last one, which the kernel counts in milliseconds."""
    newest = max((max(stamp[2:]) for stamp in state if stamp is not None), default=0)
    return newest < time.time_ns() - _SETTLED_NS


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - faster than Path.stat, and read for each command
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
