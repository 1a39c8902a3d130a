"""Starting one attempt of a command under a keeper, and waiting for its exit record."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import KeeperError
from debug_server.model import ExitReason, ExitRecord
from debug_server.runner.keeper.linux import start_time
from debug_server.runner.keeper.rundir import CRASH, EXIT, HANDLE
from debug_server.runner.keeper_process import end_keeper, end_tree, keeper_alive, wake_keeper
from debug_server.runner.launcher import KeeperConnection, KeeperPool, exit_record
from debug_server.runner.limits import LimitPlan
from debug_server.runner.log_reader import repair_index, seal_log
from debug_server.runner.run_dirs import remove_run_dir

_FENCED = {"fenced": True}
_START_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_DEAF_KEEPERS = 20
_PASS_SECONDS = 0.005
RECONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """Everything a keeper must know."""

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
    containers: bool = False  # it makes containers: control groups stay writable for it
    owner: Path | None = None  # the file that is there as long as the owner of the claim, if there is one, is alive

    def to_json(self, run_dir: Path) -> dict[str, Any]:
        """As the keeper reads it."""
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
        }


def run_dir_for(keepers_dir: Path, command_id: int, attempt: int) -> Path:
    """Where the keeper of one attempt lives; absolute, for the keeper has a working directory of its own."""
    return keepers_dir.absolute() / f"{command_id}-{attempt}"


class DetachedError(Exception):
    """This process let go of a command that goes on under its keeper."""


class RunningCommand:
    """A command under its keeper, seen from the process that started or adopted it."""

    def __init__(
        self, connection: KeeperConnection | None, run_dir: Path, handle: dict[str, Any], pool: KeeperPool | None
    ) -> None:
        self._connection = connection
        self._pool = pool  # whoever started it gives the keeper back
        self._again = False  # the keeper serves another command
        self._detached = False
        self.recorded = False  # the store knows that it runs
        self._sending = threading.Lock()  # a keeper that was given back must not hear what was meant for this command
        self.run_dir = run_dir
        self.handle = handle
        self._ends_by: float | None = handle.get("ends_by")  # by the monotonic clock, which all processes share
        self._cancelled: float | None = None  # when its end was asked for
        self._silent_seconds: float | None = None
        self.suspected: float | None = None  # since when the watchdog waits for a word from its keeper

    @property
    def heard(self) -> float:
        """When its keeper last said something, by the monotonic clock."""
        connection = self._connection
        return -math.inf if connection is None else connection.heard

    def is_late(self, now: float, slack: float) -> bool:
        """Whether its keeper should have ended it, or heard that it must, ``slack`` seconds ago."""
        overdue = self._ends_by is not None and now > self._ends_by + slack
        asked = self._cancelled
        return overdue or (asked is not None and self.heard < asked and now > asked + slack)

    def excuse(self, now: float, seconds: float) -> None:
        """Its keeper answers, and is busy: expect the end later."""
        self.suspected = None
        if self._ends_by is not None:
            self._ends_by = max(self._ends_by, now + seconds)

    def give_up_keeper(self, silent_seconds: float) -> None:
        """Its keeper is about to be killed for its silence: the record will say so."""
        self._silent_seconds = silent_seconds

    def wait(self) -> ExitRecord:
        """Block until it has ended, whatever becomes of its keeper; DetachedError after ``detach``."""
        while self._connection is not None:
            if (message := self._connection.wait_for("exit")) is not None:
                return self._end(message)
            self._hang_up()
            if self._detached:
                raise DetachedError
            self._pool = None  # whatever answers now is another conversation, with a keeper that is not ours to give
            self._connection = reconnect(self.run_dir, self.handle)
        return settle_dead(self.run_dir, self.handle, self._silent_seconds)

    def ends_within(self, seconds: float) -> ExitRecord | None:
        """Its record, if it has ended by then; ``wait`` for one that has not."""
        if self._connection is None:
            return None
        try:
            message = self._connection.wait_for("exit", timeout=seconds)
        except TimeoutError:
            return None
        return None if message is None else self._end(message)

    def _end(self, message: dict[str, Any]) -> ExitRecord:
        self._again = bool(message.get("again"))
        return exit_record(message)

    def _hang_up(self) -> None:
        with self._sending:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def send(self, message: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        if message["op"] == "cancel" and self._cancelled is None:
            self._cancelled = time.monotonic()
        with self._sending, contextlib.suppress(KeeperError):  # it has ended meanwhile
            if self._connection is not None:
                self._connection.send(message)

    def cancel(self, message: str = "cancelled on request") -> None:
        """Ask the keeper to end the tree; ``wait`` returns when it is empty."""
        self.send({"op": "cancel", "message": message})

    def end(self, message: str) -> ExitRecord:
        """Cancel it and wait, however often the caller is interrupted."""
        while True:
            self.cancel(message)
            with contextlib.suppress(KeyboardInterrupt):
                return self.wait()

    def detach(self) -> None:
        """Let go of it: whoever waits gets DetachedError, and another process may adopt it."""
        self._detached = True
        with self._sending:
            if self._connection is not None:
                self._connection.hang_up()

    def leave(self) -> None:
        """Let go of it after its end; the record stays in its directory for whoever stores it."""
        self._hang_up()

    def clean(self) -> None:
        """Have the run directory removed; call when the end is in the store.

        A keeper that goes on does it before its next command: here it would cost each command 0.3 ms.
        """
        with self._sending:
            connection, self._connection = self._connection, None
        if connection is not None and self._pool is not None and self._again:
            with contextlib.suppress(KeeperError):
                connection.send({"forget": str(self.run_dir)})
                self._pool.give_back(connection)
                return
        if connection is not None:
            connection.close()
        remove_run_dir(self.run_dir)


def launch(
    pool: KeeperPool, keepers_dir: Path, order: LaunchOrder, *, start_seconds: float = _START_SECONDS
) -> RunningCommand:
    """Start one attempt; KeeperError when no keeper can be had, or none has begun after ``start_seconds``."""
    run_dir = run_dir_for(keepers_dir, order.command_id, order.attempt)
    with contextlib.suppress(FileExistsError):  # a file in the way is the keeper's to find
        keepers_dir.mkdir(mode=0o700, parents=True)
    message = order.to_json(run_dir)
    for _ in range(3):
        connection = _order(pool, message)
        try:
            answer = _await_start(connection, start_seconds)
        except TimeoutError as error:
            return _started_late(connection, run_dir, start_seconds, error)
        except KeyboardInterrupt:
            _call_off(connection, run_dir)
            raise
        if answer is not None and answer["event"] == "started":
            return RunningCommand(connection, run_dir, answer["handle"], pool)
        connection.close()
        if answer is not None:
            raise KeeperError(answer["message"])
        if (handle := read_json(run_dir / HANDLE)) is not None:  # killed after it took the command
            return RunningCommand(None, run_dir, handle, None)
    raise KeeperError("three keepers in a row died before they could start the command: run `debug-server doctor`")


def _await_start(connection: KeeperConnection, seconds: float) -> dict[str, Any] | None:
    """Its first word; a keeper that somebody stopped while it waited for work is continued."""
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), 1e-6)
        try:
            return connection.wait_for("started", "refused", timeout=min(left, _LOOK_SECONDS))
        except TimeoutError:
            if left <= _LOOK_SECONDS:
                raise
            connection.wake()


def _started_late(connection: KeeperConnection, run_dir: Path, seconds: float, error: TimeoutError) -> RunningCommand:
    """A keeper that says nothing for so long has taken the command, or never will."""
    if (handle := fence(run_dir)) is not None:
        return RunningCommand(connection, run_dir, handle, None)
    _leave(connection, run_dir)
    raise KeeperError(f"its keeper did not start it within {seconds:g} s: the machine is overloaded") from error


def _call_off(connection: KeeperConnection, run_dir: Path) -> None:
    """A keeper that has not begun never will, one that has is cancelled."""
    if (handle := fence(run_dir)) is not None:
        RunningCommand(connection, run_dir, handle, None).end("interrupted")
    _leave(connection, run_dir)


def _leave(connection: KeeperConnection, run_dir: Path) -> None:
    """Hang up before the fence goes: the keeper looks whether we are there once it has the command's name.

    To close is not enough: the fork server may not have closed its copy of a new keeper's connection yet.
    """
    connection.hang_up()
    connection.close()
    remove_run_dir(run_dir)


def _order(pool: KeeperPool, message: dict[str, Any]) -> KeeperConnection:
    """Give orders to a keeper that hears them: those that were killed while they waited say nothing of this command."""
    for _ in range(_DEAF_KEEPERS):
        connection = pool.take()
        try:
            connection.send(message)
        except KeeperError:
            connection.close()
        else:
            return connection
    raise KeeperError(f"{_DEAF_KEEPERS} keepers in a row were dead before they had orders: run `debug-server doctor`")


def fence(run_dir: Path) -> dict[str, Any] | None:
    """Make sure that a keeper which has not begun never will; returns the handle of one that has.

    It holds while the directory is there. Remove it only after its keeper's connection, or its owner's file, is gone.
    """
    draft = run_dir.with_name(f".fence-{os.getpid()}-{start_time(os.getpid())}-{secrets.token_hex(4)}")
    draft.mkdir(parents=True, mode=0o700)
    try:
        (draft / HANDLE).write_text(json.dumps(_FENCED))
        draft.rename(run_dir)
    except OSError as error:
        remove_run_dir(draft)
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        handle = read_json(run_dir / HANDLE)
        return None if handle is None or handle.get("fenced") else handle
    return None


def settle_dead(run_dir: Path, handle: dict[str, Any], silent_seconds: float | None = None) -> ExitRecord:
    """The end of a command whose keeper is gone: its own record if it left one, else empty the tree and say so.

    ``silent_seconds``: the keeper was killed because it had not answered for so long.
    """
    if (record := read_json(run_dir / EXIT)) is not None:
        return ExitRecord.from_json(record)
    end_keeper(handle)
    survivors = end_tree(handle)
    if (record := read_json(run_dir / EXIT)) is not None:
        return ExitRecord.from_json(record)
    log_path = Path(handle["log_path"])
    if log_path.exists():
        repair_index(log_path)
        seal_log(log_path)
    evidence: dict[str, Any] = {"keeper": handle["keeper"]}
    if (crash := _crash(run_dir)) is not None:
        evidence["keeper_error"] = crash
    if survivors:
        evidence["survivors"] = survivors
    message = "its keeper died; whatever it had started was ended"
    if silent_seconds is not None:
        evidence["keeper_silent_seconds"] = round(silent_seconds, 3)
        message = f"its keeper did not answer for {silent_seconds:.0f} s and was killed with whatever it had started"
    return ExitRecord(
        reason=ExitReason.LOST,
        message=message,
        mechanism=handle["tree"]["mechanism"],
        evidence=evidence,
    )


def reconnect(run_dir: Path, handle: dict[str, Any], patience: float = RECONNECT_SECONDS) -> KeeperConnection | None:
    """To the keeper of a handle; None when it has ended, well or badly, or cannot be reached."""
    deadline = time.monotonic() + patience
    # A keeper that waits for its next command has a socket, too, and does not answer there.
    while read_json(run_dir / EXIT) is None:
        wake_keeper(handle)  # a stopped one takes no more callers than its queue holds
        try:
            return KeeperConnection.connect(run_dir)
        except KeeperError:
            # Its socket comes a moment after its handle, and goes a moment after its record. Without the directory
            # the keeper has gone on to another command.
            over = not run_dir.is_dir() or not keeper_alive(handle)
            if over or time.monotonic() >= deadline:
                return None
            time.sleep(_PASS_SECONDS)
    return None


def writer_of(keepers_dir: Path, command_id: int, log_path: Path) -> Path | None:
    """The run directory of a live keeper that writes to ``log_path``, for a command of this number in any store."""
    for run_dir in keepers_dir.glob(f"{command_id}-*"):
        with contextlib.suppress(ValueError):  # damaged: it tells nothing
            handle = read_json(run_dir / HANDLE)
            if handle is None or handle.get("fenced") or not keeper_alive(handle):
                continue
            if Path(handle["log_path"]).parts[-2:] == log_path.parts[-2:]:
                return run_dir
    return None


def read_json(path: Path) -> dict[str, Any] | None:
    """A small file that appears whole or not at all."""
    text = _read_text(path)
    return None if text is None else json.loads(text)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _crash(run_dir: Path) -> str | None:
    """The last line of the traceback that a failing keeper left."""
    lines = (_read_text(run_dir / CRASH) or "").splitlines()
    return lines[-1] if lines else None
