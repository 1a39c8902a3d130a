"""Finds running commands without a store, by the run directories of their keepers, and ends them.

A handle is used only if what it names can belong to it: processes of the owner of the run directories, and control
groups with the keeper's name. Nothing is ended because of a damaged handle, or one that names other processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.disk import Folder, list_mounts, open_folder
from debug_server.errors import KeeperError
from debug_server.runner.keeper.containment import GROUP_PREFIX
from debug_server.runner.keeper.group_tree import rebuild
from debug_server.runner.keeper.linux import boot_id, is_alive
from debug_server.runner.keeper.rundir import EXIT, HANDLE
from debug_server.runner.keeper.tree import MarkedTree, NamespaceTree
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.keeper_process import end_keeper, end_tree, keeper_alive

_CANCEL = {"op": "cancel", "message": "its data folder is being removed"}
_RUN_DIR = re.compile(r"[0-9]+-[0-9]+")
_MAX_HANDLE = 1 << 20
_CGROUPS = "cgroup", "cgroup2"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCommand:
    """One attempt, and the handle that identifies its keeper and its process tree."""

    run_dir: Path
    handle: dict[str, Any]

    @property
    def command_id(self) -> int:
        """Its id in the store."""
        return int(self.handle["command_id"])

    @property
    def log_name(self) -> str:
        """The name of its log among the logs of its data folder."""
        return Path(self.handle["log_path"]).name

    def command_line(self) -> str:
        """The command line of the first process of its tree that can be read; empty when there is none."""
        for pid in sorted(rebuild(self.handle["tree"]).pids()):
            with contextlib.suppress(OSError):
                if words := Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0"):
                    return words.replace(b"\0", b" ").decode("utf-8", "replace")
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedHandle:
    """A run directory whose processes are not known: its keeper ends when the directory is removed."""

    name: str
    reason: str


def live_commands(keepers_dir: Path) -> list[LiveCommand]:
    """Commands that have not ended: their keeper, or a process that it started, is alive."""
    return [found for found in _scan(keepers_dir) if isinstance(found, LiveCommand)]


def damaged_handles(keepers_dir: Path) -> list[DamagedHandle]:
    """Run directories whose handle is damaged or names processes that cannot be the command's."""
    return [found for found in _scan(keepers_dir) if isinstance(found, DamagedHandle)]


def _scan(keepers_dir: Path) -> Iterator[LiveCommand | DamagedHandle]:
    try:
        with open_folder(keepers_dir) as folder:
            owner = os.fstat(folder.descriptor).st_uid
            for name in filter(_RUN_DIR.fullmatch, folder.names()):
                try:
                    command = _command(folder, keepers_dir.absolute() / name, owner)
                except FileNotFoundError:  # no handle yet, or not any more
                    continue
                except KeyError as error:
                    yield DamagedHandle(name=name, reason=f"{HANDLE} has no {error.args[0]!r}")
                except (OSError, ValueError, TypeError, AttributeError) as error:
                    reason = error.strerror if isinstance(error, OSError) else error
                    yield DamagedHandle(name=name, reason=f"{HANDLE}: {reason}")
                else:
                    if command is not None:
                        yield command
    except (FileNotFoundError, NotADirectoryError):
        return


def _command(folder: Folder, run_dir: Path, owner: int) -> LiveCommand | None:
    """The command of a run directory; None when it has ended. Any error means that the handle is damaged."""
    handle = json.loads(folder.read(f"{run_dir.name}/{HANDLE}", _MAX_HANDLE))
    if handle.get("fenced") or EXIT in folder.names(run_dir.name):
        return None
    command = LiveCommand(run_dir=run_dir, handle=handle)
    if handle["keeper"]["boot_id"] != boot_id():
        return None
    _check(command, owner)
    return command if keeper_alive(handle) or command.command_line() else None


def _check(command: LiveCommand, owner: int) -> None:
    """ValueError when the handle names processes that are not this owner's, or groups that are not the keeper's."""
    keeper, tree = command.handle["keeper"], rebuild(command.handle["tree"])
    named = [(keeper["pid"], keeper["start_time"])]
    if isinstance(tree, NamespaceTree):
        named.append((tree.init, tree.started))
    for pid, started in named:
        if (user := user_of(pid)) not in (None, owner) and is_alive(pid, started):
            raise ValueError(f"process {pid} belongs to user {user}, not to {owner}")
    mark = f"{keeper['pid']}-{keeper['start_time']}"
    if isinstance(tree, MarkedTree) and tree.marker != MarkedTree(mark).marker:
        raise ValueError(f"its mark is not that of process {keeper['pid']}")
    for path in command.handle["tree"].get("groups", {}).values():
        if not Path(path).name.startswith(f"{GROUP_PREFIX}{mark}-") or not _is_cgroup(path):
            raise ValueError(f"{path} is not a control group of process {keeper['pid']}")
    _ = command.command_id, command.log_name  # raises KeyError if the handle lacks them


def user_of(pid: int) -> int | None:
    """The real user of a process; None when it is gone."""
    try:
        status = Path(f"/proc/{int(pid)}/status").read_text()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:"))


def _is_cgroup(path: str) -> bool:
    mounts = [mount.target for mount in list_mounts(Path("/")) if mount.kind in _CGROUPS]
    return os.path.normpath(path) == path and any(Path(path).is_relative_to(target) for target in mounts)


def end_commands(commands: list[LiveCommand], *, seconds: float) -> list[int]:
    """Cancel them, wait up to ``seconds`` for all, then kill what is left; returns the pids of survivors.

    Their logs stay as they are: they are removed with the data folder.
    """
    cancelled = [(command, connection) for command in commands if (connection := _cancel(command.run_dir)) is not None]
    deadline = time.monotonic() + seconds
    for _, connection in cancelled:
        with contextlib.suppress(TimeoutError, KeeperError):
            connection.wait_for("exit", timeout=max(0.1, deadline - time.monotonic()))
        connection.close()
    survivors: list[int] = []
    for command in commands:
        if not (command.run_dir / EXIT).exists():
            end_keeper(command.handle)
            survivors += end_tree(command.handle)
    return survivors


def _cancel(run_dir: Path) -> KeeperConnection | None:
    try:
        connection = KeeperConnection.connect(run_dir)
        connection.send(_CANCEL)
    except KeeperError:
        return None
    return connection
