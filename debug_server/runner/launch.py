"""Starts one attempt of a command under a keeper."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import DebugServerError, DiskFullError, KeeperError, ResourcesExhaustedError
from debug_server.runner.isolation import SessionFolders
from debug_server.runner.keeper.rundir import HANDLE
from debug_server.runner.keeper_connection import KeeperConnection
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.limits import LimitPlan
from debug_server.runner.run_dirs import fence, read_json, remove_run_dir, run_dir_for
from debug_server.runner.running_command import RunningCommand

_LOG = logging.getLogger(__name__)
_START_SECONDS = 60.0
_CHECK_SECONDS = 1.0
_PROCESS_SECONDS = 30.0
_RETRY_SECONDS = 0.2
_MAX_DEAD_KEEPERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """Everything that a keeper needs to run one attempt of a command."""

    command_id: int
    attempt: int
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    limits: LimitPlan
    log_path: Path
    kill_grace: float
    disk_reserve: int = 0
    tty: Mapping[str, int] | None = None
    stdin: bool = False
    stdin_text: str | None = None
    relay: bool = False
    orphan_seconds: float | None = None
    pre_kill: Sequence[str] = ()
    secrets: Sequence[str] = ()  # names of variables whose values must not reach the log
    folders: SessionFolders | None = None  # of an isolated command, to be created before the start
    isolation: Mapping[str, Any] | None = None  # ``plan`` for the child, and ``report`` for the exit record
    containers: bool = False  # the command creates containers: control groups stay writable
    owner: Path | None = None  # a file that exists while the owner of the claim is alive; None: no owner

    def to_json(self, run_dir: Path) -> dict[str, Any]:
        """The message to the keeper."""
        return {
            "run_dir": str(run_dir),
            "command_id": self.command_id,
            "attempt": self.attempt,
            "owner": str(self.owner) if self.owner else None,
            "argv": list(self.argv),
            "env": dict(self.env),
            "cwd": str(self.cwd),
            "limits": self.limits,
            "log_path": str(self.log_path),
            "kill_grace": self.kill_grace,
            "disk_reserve": self.disk_reserve,
            "umask": 0o022,
            "tty": dict(self.tty) if self.tty else None,
            "stdin": self.stdin or self.stdin_text is not None,
            "stdin_text": self.stdin_text,
            "relay": self.relay,
            "orphan_seconds": self.orphan_seconds,
            "pre_kill": list(self.pre_kill),
            "secrets": list(self.secrets),
            "containers": self.containers,
            "isolation": self.isolation,
        }


def launch(
    pool: KeeperPool, keepers_dir: Path, order: LaunchOrder, *, start_seconds: float = _START_SECONDS
) -> RunningCommand:
    """Start one attempt; KeeperError if no keeper is available or starts it within ``start_seconds``.

    ResourcesExhaustedError if no process could be created for 30 s; DiskFullError if its files do not fit on the disk.
    """
    deadline = None
    while True:
        try:
            return _launch(pool, keepers_dir, order, start_seconds)
        except ResourcesExhaustedError as error:
            if deadline is None:
                deadline = time.monotonic() + _PROCESS_SECONDS
                _LOG.warning("command_process_not_created", extra={"command_id": order.command_id, "error": str(error)})
            elif time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def _launch(pool: KeeperPool, keepers_dir: Path, order: LaunchOrder, start_seconds: float) -> RunningCommand:
    run_dir = run_dir_for(keepers_dir, order.command_id, order.attempt)
    try:
        keepers_dir.mkdir(mode=0o700, parents=True)
    except FileExistsError:  # a file at this path: the keeper reports it
        pass
    except OSError as error:
        raise _refusal(str(error), error.errno) from error
    message = order.to_json(run_dir)
    for _ in range(3):
        connection = _send_order(pool, message)
        try:
            answer = _await_start(connection, start_seconds)
        except TimeoutError as error:
            return _started_late(connection, run_dir, start_seconds, error)
        except KeyboardInterrupt:
            _cancel_or_fence(connection, run_dir)
            raise
        if answer is not None and answer["event"] == "started":
            return RunningCommand(connection, run_dir, answer["handle"], pool)
        connection.close()
        if answer is not None:
            raise _refusal(answer["message"], answer.get("errno"))
        if (handle := read_json(run_dir / HANDLE)) is not None:  # killed after it took the command
            return RunningCommand(None, run_dir, handle, None)
    raise KeeperError("three keepers in a row died before they could start the command: run `debug-server doctor`")


def _refusal(message: str, number: int | None) -> DebugServerError:
    """The error for a keeper's refusal, by its errno."""
    error = OSError(number or 0, message)
    return ResourcesExhaustedError.of(error) or DiskFullError.of(error, message) or KeeperError(message)


def _await_start(connection: KeeperConnection, seconds: float) -> dict[str, Any] | None:
    """The keeper's first answer; a stopped keeper is continued."""
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), 1e-6)
        try:
            return connection.wait_for("started", "refused", timeout=min(left, _CHECK_SECONDS))
        except TimeoutError:
            if left <= _CHECK_SECONDS:
                raise
            connection.wake()


def _started_late(connection: KeeperConnection, run_dir: Path, seconds: float, error: TimeoutError) -> RunningCommand:
    """After a timeout: either the keeper has the command, or the fence keeps it from starting it."""
    if (handle := fence(run_dir)) is not None:
        return RunningCommand(connection, run_dir, handle, None)
    _disconnect_and_remove_fence(connection, run_dir)
    raise KeeperError(f"its keeper did not start it within {seconds:g} s: the machine is overloaded") from error


def _cancel_or_fence(connection: KeeperConnection, run_dir: Path) -> None:
    """Cancel a command that the keeper has started; otherwise fence it off."""
    if (handle := fence(run_dir)) is not None:
        RunningCommand(connection, run_dir, handle, None).cancel_and_wait("interrupted")
    _disconnect_and_remove_fence(connection, run_dir)


def _disconnect_and_remove_fence(connection: KeeperConnection, run_dir: Path) -> None:
    """Disconnect before the fence is removed: the keeper checks the connection after it has taken the run directory.

    shutdown() before close(): the fork server may still have a copy of the connection.
    """
    connection.hang_up()
    connection.close()
    remove_run_dir(run_dir)


def _send_order(pool: KeeperPool, message: dict[str, Any]) -> KeeperConnection:
    """Send the orders to a live keeper; idle keepers that were killed are skipped."""
    for _ in range(_MAX_DEAD_KEEPERS):
        connection = pool.take()
        try:
            connection.send(message)
        except KeeperError:
            connection.close()
        else:
            return connection
    raise KeeperError(
        f"{_MAX_DEAD_KEEPERS} keepers in a row were dead before they received orders: run `debug-server doctor`"
    )
