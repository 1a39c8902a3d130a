"""A keeper's process as the server sees it: whether it lives or was stopped, and how to end it and its tree."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any

from debug_server.runner.keeper.group_tree import rebuild
from debug_server.runner.keeper.linux import boot_id, is_alive, stat_fields
from debug_server.runner.keeper.tree import MarkedTree, Tree

_END_SECONDS = 30.0
_KILL_PASSES = 2000
_PASS_SECONDS = 0.005


def keeper_alive(handle: dict[str, Any]) -> bool:
    """Whether the very keeper that wrote this handle still runs."""
    keeper = handle["keeper"]
    return bool(keeper["boot_id"] == boot_id() and is_alive(keeper["pid"], keeper["start_time"]))


def state_of(pid: int, started: int) -> str | None:
    """The letter that ``ps`` shows for that very process; None when it is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields is not None and int(fields[19]) == started and fields[0] not in "ZX" else None


def is_stopped(state: str | None) -> bool:
    """Whether somebody has stopped it: by a signal, or as its tracer."""
    return state is not None and state in "Tt"


def wake(pid: int, started: int) -> None:
    """Continue that very process if it was stopped; nobody but its own command, or an accident, stops a keeper."""
    if is_stopped(state_of(pid, started)):
        _signal(pid, started, signal.SIGCONT)


def wake_keeper(handle: dict[str, Any]) -> None:
    """The same for the keeper of a handle."""
    if handle["keeper"]["boot_id"] == boot_id():
        wake(handle["keeper"]["pid"], handle["keeper"]["start_time"])


def end_keeper(handle: dict[str, Any]) -> None:
    """Kill one that lives but cannot be reached: what it has yet to start would escape the emptying of its tree."""
    if keeper_alive(handle):
        _signal(handle["keeper"]["pid"], handle["keeper"]["start_time"], signal.SIGKILL, wait=_END_SECONDS)


def _signal(pid: int, started: int, number: int, wait: float = 0.0) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process = os.pidfd_open(pid)
        try:
            if is_alive(pid, started):  # not before it is held: the number may be another's by now
                signal.pidfd_send_signal(process, number)
                if wait:
                    select.select([process], [], [], wait)
        finally:
            os.close(process)


def end_tree(handle: dict[str, Any]) -> list[int]:
    """End the tree of a dead keeper, and whatever has left its group; returns what could not be ended."""
    keeper = handle["keeper"]
    if keeper["boot_id"] != boot_id():
        return []
    marked = MarkedTree(f"{keeper['pid']}-{keeper['start_time']}")
    return sorted({*_empty(rebuild(handle["tree"])), *_empty(marked)})


def _empty(tree: Tree) -> list[int]:
    """End what is left; the fork server may be doing the same, which does no harm."""
    for _ in range(_KILL_PASSES):
        if not tree.empty():
            tree.kill()
        elif tree.remove():
            return []
        time.sleep(_PASS_SECONDS)
    return tree.pids()
