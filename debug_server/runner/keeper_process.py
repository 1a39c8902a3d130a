"""Checks, continues and ends the process of a keeper, from the server's side."""

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
    """Whether the keeper that wrote this handle still runs (not another process with its pid)."""
    keeper = handle["keeper"]
    return bool(keeper["boot_id"] == boot_id() and is_alive(keeper["pid"], keeper["start_time"]))


def process_state(pid: int, started: int) -> str | None:
    """The state letter of ``ps`` for that process; None when it is gone."""
    fields = stat_fields(pid)
    return fields[0] if fields is not None and int(fields[19]) == started and fields[0] not in "ZX" else None


def is_stopped(state: str | None) -> bool:
    """Whether it is stopped: by a signal or by a tracer."""
    return state is not None and state in "Tt"


def continue_if_stopped(pid: int, started: int) -> None:
    """Continue that process if it is stopped; only its own command, or an accident, stops a keeper."""
    if is_stopped(process_state(pid, started)):
        _signal(pid, started, signal.SIGCONT)


def continue_keeper_if_stopped(handle: dict[str, Any]) -> None:
    """Continue the keeper of a handle if it is stopped."""
    if handle["keeper"]["boot_id"] == boot_id():
        continue_if_stopped(handle["keeper"]["pid"], handle["keeper"]["start_time"])


def end_keeper(handle: dict[str, Any]) -> None:
    """Kill a keeper that is alive but does not answer: otherwise it could start processes while its tree is ended."""
    if keeper_alive(handle):
        _signal(handle["keeper"]["pid"], handle["keeper"]["start_time"], signal.SIGKILL, wait=_END_SECONDS)


def _signal(pid: int, started: int, number: int, wait: float = 0.0) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process = os.pidfd_open(pid)
        try:
            if is_alive(pid, started):  # after pidfd_open: the pid may have been reused
                signal.pidfd_send_signal(process, number)
                if wait:
                    select.select([process], [], [], wait)
        finally:
            os.close(process)


def end_tree(handle: dict[str, Any]) -> list[int]:
    """End the tree of a dead keeper, and processes that left its group; returns the pids of survivors."""
    keeper = handle["keeper"]
    if keeper["boot_id"] != boot_id():
        return []
    # What left one of the groups may still be in another, which can be removed only once it has ended.
    outside = _kill_all(MarkedTree(f"{keeper['pid']}-{keeper['start_time']}"))
    return sorted({*outside, *_kill_all(rebuild(handle["tree"]))})


def _kill_all(tree: Tree) -> list[int]:
    """End all processes; the fork server may do the same at the same time."""
    for _ in range(_KILL_PASSES):
        if not tree.empty():
            tree.kill()
        elif tree.remove():
            return []
        time.sleep(_PASS_SECONDS)
    return tree.pids()
