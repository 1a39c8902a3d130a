"""Recovers the commands of a server that died.

For each command with a dead owner: take it over, then look at its run directory.

    no handle             fence it: it never started      -> back to the queue (or lost, if its caller waited inline)
    handle, exit record   it ended without a server       -> finish
    handle, live keeper   it runs                         -> adopt: connect and wait
    handle, dead keeper   its tree is removed             -> lost
    running, no handle    its directory was removed: the row's copy says where its tree is -> lost
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import ownership
from debug_server.errors import DebugServerError, NotFoundError
from debug_server.model import Command, ExitReason, ExitRecord
from debug_server.ports import CommandStore
from debug_server.runner.keeper.rundir import EXIT, HANDLE
from debug_server.runner.keeper_process import keeper_alive
from debug_server.runner.log_format import index_path
from debug_server.runner.log_reader import is_unused
from debug_server.runner.planning import log_path_of
from debug_server.runner.run_dirs import fence, is_being_created, read_json, remove_run_dir, run_dir_for
from debug_server.runner.running_command import RECONNECT_SECONDS, RunningCommand, reconnect
from debug_server.runner.settings import RunnerPaths

_LOG = logging.getLogger(__name__)
Claim = tuple[int, int]  # a command and its attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """A command that still runs, now owned by this process."""

    command: Command
    running: RunningCommand
    log_path: Path


def recover(
    store: CommandStore,
    paths: RunnerPaths,
    owner: str,
    *,
    session_id: int | None = None,
    workers: bool = False,
    ended_only: bool = False,
    orphaned: Collection[Claim] = (),
) -> list[Adopted]:
    """Recover every command (or, with ``workers``, every worker run) of a dead owner; returns those to wait for.

    With ``ended_only`` running commands are left to a process that can wait for them. ``orphaned`` claims of
    this owner are recovered too: no thread of this process runs their commands.
    """
    adopted = []
    ownership.remove_dead(paths.owners_dir)
    for command in store.queue.claimed():
        if session_id is not None and command.session_id != session_id:
            continue
        if (command.plan.worker is not None) != workers:
            continue
        if command.owner is None or not ownership.is_ours(paths.owners_dir, command.owner):
            continue
        is_orphaned = command.owner == owner and (command.id, command.attempt) in orphaned
        if not is_orphaned and ownership.is_alive(paths.owners_dir, command.owner):
            continue
        if ended_only and _still_runs(paths, command):
            continue
        if store.queue.take_over(command.id, attempt=command.attempt, owner=command.owner, new_owner=owner):
            found = _recover_or_give_back(store, paths, owner, command)
            if found is not None:
                adopted.append(found)
    _remove_leftovers(store, paths)
    return adopted


def _still_runs(paths: RunnerPaths, command: Command) -> bool:
    run_dir = run_dir_for(paths.keepers_dir, command.id, command.attempt)
    try:
        handle = read_json(run_dir / HANDLE)
    except ValueError:  # damaged: the process that takes it over finds out
        return True
    alive = handle is not None and not handle.get("fenced") and keeper_alive(handle)
    return alive and not (run_dir / EXIT).exists()


def _recover_or_give_back(store: CommandStore, paths: RunnerPaths, owner: str, command: Command) -> Adopted | None:
    """Recover one command; after an error it goes back to its dead owner, and the next recovery tries again."""
    try:
        return _recover_one(store, paths, owner, store.commands.get(command.id))
    except (DebugServerError, OSError, ValueError) as error:
        _LOG.warning("recovery_failed", extra={"command_id": command.id, "error": str(error)})
        store.queue.take_over(command.id, attempt=command.attempt, owner=owner, new_owner=command.owner or "")
        return None


def _remove_leftovers(store: CommandStore, paths: RunnerPaths) -> None:
    """Remove run directories of ended commands; those of another store are left alone."""
    for run_dir in paths.keepers_dir.glob("[0-9]*-[0-9]*"):
        number, _, attempt = run_dir.name.partition("-")
        with contextlib.suppress(NotFoundError, ValueError):
            command = store.commands.get(int(number))
            if command.status.terminal or command.owner is None or command.attempt > int(attempt):
                remove_run_dir(run_dir)
    for hidden in paths.keepers_dir.glob(".*"):
        if not is_being_created(hidden):
            remove_run_dir(hidden)


def _recover_one(store: CommandStore, paths: RunnerPaths, owner: str, command: Command) -> Adopted | None:
    run_dir = run_dir_for(paths.keepers_dir, command.id, command.attempt)
    patience = RECONNECT_SECONDS
    try:
        handle = fence(run_dir)
    except ValueError:  # damaged: the row has a copy
        handle = store.commands.handle(command.id)
    if handle is None and command.status == "running":
        handle, patience = store.commands.handle(command.id), 0.0  # its directory and socket are gone
    if handle is None:
        _finish_or_requeue(store, owner, command)
        remove_run_dir(run_dir)
        _remove_empty_log(store, paths, command)
        return None
    _LOG.info("command_adopted", extra={"command_id": command.id, "attempt": command.attempt})
    if command.status == "pending":
        store.commands.start(
            command.id, attempt=command.attempt, owner=owner, handle=handle, log_path=handle["log_path"]
        )
    running = RunningCommand(reconnect(run_dir, handle, patience), run_dir, handle, None)
    if command.cancel_requested:
        running.cancel()
    return Adopted(command=command, running=running, log_path=Path(handle["log_path"]))


def _remove_empty_log(store: CommandStore, paths: RunnerPaths, command: Command) -> None:
    """Remove the empty log of a command that ended without a start; a requeued one needs its log."""
    if store.commands.get(command.id).status.terminal:
        path = log_path_of(paths, command)
        with contextlib.suppress(FileNotFoundError):
            if is_unused(path):
                path.unlink()
                Path(index_path(path)).unlink()


def _finish_or_requeue(store: CommandStore, owner: str, command: Command) -> None:
    if command.plan.inline or command.status == "running":
        record = ExitRecord(reason=ExitReason.LOST, message="its caller died before the command was started")
        store.commands.finish(command.id, attempt=command.attempt, owner=owner, record=record)
    else:
        store.queue.requeue(command.id, attempt=command.attempt, owner=owner)
