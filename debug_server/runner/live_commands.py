"""Finds running commands without a store, by the run directories of their keepers."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import KeeperError
from debug_server.runner.keeper.group_tree import rebuild
from debug_server.runner.keeper.rundir import EXIT, HANDLE
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.keeper_process import keeper_alive
from debug_server.runner.run_dirs import read_json
from debug_server.runner.running_command import finish_without_keeper

_CANCEL = {"op": "cancel", "message": "its data folder is being removed"}


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
    def log_path(self) -> Path:
        """Where its output goes."""
        return Path(self.handle["log_path"])

    def command_line(self) -> str:
        """Of the first process of its tree that can be read; empty when there is none."""
        for pid in sorted(rebuild(self.handle["tree"]).pids()):
            with contextlib.suppress(OSError):
                if words := Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0"):
                    return words.replace(b"\0", b" ").decode("utf-8", "replace")
        return ""


def live_commands(keepers_dir: Path) -> list[LiveCommand]:
    """Commands that have not ended: their keeper, or a process that it started, is alive."""
    found = []
    for run_dir in sorted(keepers_dir.absolute().glob("[0-9]*-[0-9]*")):
        with contextlib.suppress(ValueError, KeyError):  # damaged: its keeper ends when its directory is removed
            handle = read_json(run_dir / HANDLE)
            if handle is None or handle.get("fenced") or (run_dir / EXIT).exists():
                continue
            command = LiveCommand(run_dir=run_dir, handle=handle)
            if keeper_alive(handle) or command.command_line():
                found.append(command)
    return found


def end_commands(commands: list[LiveCommand], *, seconds: float) -> list[int]:
    """Cancel them, wait up to ``seconds`` for all, then kill what is left; returns the pids of survivors."""
    cancelled = [(command, connection) for command in commands if (connection := _cancel(command.run_dir)) is not None]
    deadline = time.monotonic() + seconds
    for _, connection in cancelled:
        with contextlib.suppress(TimeoutError, KeeperError):
            connection.wait_for("exit", timeout=max(0.1, deadline - time.monotonic()))
        connection.close()
    survivors: list[int] = []
    for command in commands:
        record = finish_without_keeper(command.run_dir, command.handle)
        survivors += (record.evidence or {}).get("survivors", [])
    return survivors


def _cancel(run_dir: Path) -> KeeperConnection | None:
    try:
        connection = KeeperConnection.connect(run_dir)
        connection.send(_CANCEL)
    except KeeperError:
        return None
    return connection
