"""A command under its keeper: waits for its end, cancels it, and recovers its end when the keeper is gone."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from pathlib import Path
from typing import Any

from debug_server.errors import KeeperError
from debug_server.model import ExitReason, ExitRecord
from debug_server.runner.keeper.rundir import CRASH, EXIT
from debug_server.runner.keeper_connection import KeeperConnection, exit_record
from debug_server.runner.keeper_pool import KeeperPool
from debug_server.runner.keeper_process import continue_keeper_if_stopped, end_keeper, end_tree, keeper_alive
from debug_server.runner.log_reader import repair_index, seal_log
from debug_server.runner.run_dirs import read_json, read_text, remove_run_dir

_POLL_SECONDS = 0.005
RECONNECT_SECONDS = 30.0


class DetachedError(Exception):
    """This process detached from a command that continues under its keeper."""


class RunningCommand:
    """A command under its keeper, seen from the process that started or adopted it."""

    def __init__(
        self, connection: KeeperConnection | None, run_dir: Path, handle: dict[str, Any], pool: KeeperPool | None
    ) -> None:
        self._connection = connection
        self._pool = pool  # the process that started the command returns the keeper to it
        self._keeper_reusable = False  # the keeper will serve another command
        self._detached = False
        self.start_recorded = False  # the start is in the store
        self._sending = threading.Lock()  # a returned keeper must not receive requests for this command
        self.run_dir = run_dir
        self.handle = handle
        self._ends_by: float | None = handle.get("ends_by")  # monotonic time, the same in all processes
        self._cancelled: float | None = None  # when the cancellation was sent
        self._silent_seconds: float | None = None
        self.suspected_since: float | None = None  # since when the watchdog waits for an answer of its keeper

    @property
    def last_message_at(self) -> float:
        """The monotonic time of the last message from its keeper."""
        connection = self._connection
        return -math.inf if connection is None else connection.last_message_at

    def is_late(self, now: float, slack: float) -> bool:
        """Whether its keeper should have ended it, or answered the cancellation, ``slack`` seconds ago."""
        overdue = self._ends_by is not None and now > self._ends_by + slack
        asked = self._cancelled
        return overdue or (asked is not None and self.last_message_at < asked and now > asked + slack)

    def extend_deadline(self, now: float, seconds: float) -> None:
        """Expect the end later: its keeper answers, but is busy."""
        self.suspected_since = None
        if self._ends_by is not None:
            self._ends_by = max(self._ends_by, now + seconds)

    def note_keeper_silence(self, silent_seconds: float) -> None:
        """Note for the exit record that its keeper is killed because it did not answer."""
        self._silent_seconds = silent_seconds

    def wait(self) -> ExitRecord:
        """Wait for its end, also if its keeper dies; DetachedError after ``detach``."""
        while self._connection is not None:
            if (message := self._connection.wait_for("exit")) is not None:
                return self._exit_record(message)
            self._hang_up()
            if self._detached:
                raise DetachedError
            self._pool = None  # a new connection: the keeper cannot be returned to the pool
            self._connection = reconnect(self.run_dir, self.handle)
        return finish_without_keeper(self.run_dir, self.handle, self._silent_seconds)

    def ends_within(self, seconds: float) -> ExitRecord | None:
        """Its exit record if it ends within ``seconds``, else None."""
        if self._connection is None:
            return None
        try:
            message = self._connection.wait_for("exit", timeout=seconds)
        except TimeoutError:
            return None
        return None if message is None else self._exit_record(message)

    def _exit_record(self, message: dict[str, Any]) -> ExitRecord:
        self._keeper_reusable = bool(message.get("again"))
        return exit_record(message)

    def _hang_up(self) -> None:
        with self._sending:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def send(self, message: dict[str, Any]) -> None:
        """Send a request without waiting for the answer."""
        if message["op"] == "cancel" and self._cancelled is None:
            self._cancelled = time.monotonic()
        with self._sending, contextlib.suppress(KeeperError):  # it has ended meanwhile
            if self._connection is not None:
                self._connection.send(message)

    def cancel(self, message: str = "cancelled on request") -> None:
        """Ask the keeper to end the tree; ``wait`` returns when it is empty."""
        self.send({"op": "cancel", "message": message})

    def cancel_and_wait(self, message: str) -> ExitRecord:
        """Cancel it and wait, even if the caller is interrupted again."""
        while True:
            self.cancel(message)
            with contextlib.suppress(KeyboardInterrupt):
                return self.wait()

    def detach(self) -> None:
        """Disconnect: ``wait`` raises DetachedError, and another process may adopt the command."""
        self._detached = True
        with self._sending:
            if self._connection is not None:
                self._connection.hang_up()

    def leave(self) -> None:
        """Disconnect after its end; the record stays in the run directory until a process stores it."""
        self._hang_up()

    def dispose(self) -> None:
        """Remove the run directory; call it when the end is in the store.

        A keeper that serves another command does it later: here it would cost each command 0.3 ms.
        """
        with self._sending:
            connection, self._connection = self._connection, None
        if connection is not None and self._pool is not None and self._keeper_reusable:
            with contextlib.suppress(KeeperError):
                connection.send({"forget": str(self.run_dir)})
                self._pool.give_back(connection)
                return
        if connection is not None:
            connection.close()
        remove_run_dir(self.run_dir)


def finish_without_keeper(run_dir: Path, handle: dict[str, Any], silent_seconds: float | None = None) -> ExitRecord:
    """The exit record of a command whose keeper is gone: the keeper's own, else end the tree and report it as lost.

    ``silent_seconds``: the keeper was killed because it had not answered for that long.
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
    message = "its keeper died; its processes were ended"
    if silent_seconds is not None:
        evidence["keeper_silent_seconds"] = round(silent_seconds, 3)
        message = f"its keeper did not answer for {silent_seconds:.0f} s and was killed with its processes"
    return ExitRecord(
        reason=ExitReason.LOST,
        message=message,
        mechanism=handle["tree"]["mechanism"],
        evidence=evidence,
    )


def reconnect(run_dir: Path, handle: dict[str, Any], patience: float = RECONNECT_SECONDS) -> KeeperConnection | None:
    """Connect to the keeper of a handle; None when it has ended or cannot be reached."""
    deadline = time.monotonic() + patience
    # An idle keeper has a socket too, but does not answer there.
    while read_json(run_dir / EXIT) is None:
        continue_keeper_if_stopped(handle)  # a stopped one does not accept connections
        try:
            return KeeperConnection.connect(run_dir)
        except KeeperError:
            # The socket appears shortly after the handle and disappears shortly after the record. Without the
            # directory the keeper serves another command.
            over = not run_dir.is_dir() or not keeper_alive(handle)
            if over or time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)
    return None


def _crash(run_dir: Path) -> str | None:
    """The last line of the traceback of a keeper that failed."""
    lines = (read_text(run_dir / CRASH) or "").splitlines()
    return lines[-1] if lines else None
