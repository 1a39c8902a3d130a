"""The ends of commands on their way into the store, which may be locked, full or down for any time.

    ended --record--> in the store
       |                 ^
       +--kept here------+ settle, as often as it takes

What is kept here is also in the command's run directory: if this process dies first, recovery reads it there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debug_server.errors import ConflictError, MetadataError, StoreUnavailableError
from debug_server.model import Command, ExitRecord, status_for
from debug_server.ports import CommandStore
from debug_server.runner.launch import RunningCommand
from debug_server.runner.spec import CommandResult

_LOG = logging.getLogger(__name__)
STORE_SECONDS = 60.0  # how long a caller that waits for its command waits for the store
STORE_RETRY = 0.25
_SOON = 0.01


class UnrecordedEndError(StoreUnavailableError):
    """The command has ended as ``result`` says; the store does not know yet and is told as soon as it is back."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a command ended, and what is left to do once the store knows."""

    command: Command
    record: ExitRecord
    log_path: Path
    handle: Mapping[str, Any] | None = None  # of a command whose start was not recorded
    running: RunningCommand | None = None  # None for a command that never started

    @property
    def result(self) -> CommandResult:
        """For the caller."""
        status = status_for(self.record.reason)
        return CommandResult(self.command.id, status, self.record.exit_code, self.log_path, exit=self.record)


class Endings:
    """Records ends and keeps those that the store could not take; safe to share between threads."""

    def __init__(self, store: CommandStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: dict[int, End] = {}

    @property
    def kept(self) -> list[int]:
        """The commands whose end the store does not have yet."""
        with self._lock:
            return sorted(self._kept)

    def record(self, end: End, *, seconds: float) -> None:
        """Set the command's terminal state; UnrecordedEndError when the store is still away after ``seconds``."""
        deadline = time.monotonic() + max(seconds, STORE_RETRY)  # a full disk: the second try has its reserve
        while True:
            try:
                self._finish(end)
            except StoreUnavailableError as error:
                if time.monotonic() >= deadline:
                    self._keep(end, error)
                time.sleep(_SOON if seconds < STORE_RETRY else STORE_RETRY)
            else:
                return

    def settle(self, commands: Collection[int]) -> Iterator[End]:
        """Record the kept ends of these commands, one after another; StoreUnavailableError when the store is away."""
        for number in commands:
            if (end := self._kept.get(number)) is None:
                continue
            try:
                self._finish(end)
            except StoreUnavailableError:
                raise
            except MetadataError as error:  # the row is another owner's by now, and so is the run directory
                _LOG.warning("end_refused", extra={"command_id": number, "error": str(error)})
                self._drop(number)
            else:
                self._drop(number)
                yield end

    def leave(self) -> None:
        """Let another process record what is kept; it finds it in the run directories."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for end in kept.values():
            if end.running is not None:
                end.running.leave()

    def _finish(self, end: End) -> None:
        command = end.command
        try:
            self._store.commands.finish(
                command.id,
                attempt=command.attempt,
                owner=command.owner or "",
                record=end.record,
                log_path=str(end.log_path) if end.log_path.exists() else None,
                handle=end.handle,
            )
        except ConflictError:
            # A connection that breaks during the commit leaves open whether it was made: then this is the second try.
            row = self._store.commands.get(command.id)
            if not (is_claim_of(row, command) and row.exit == end.record):
                raise

    def _keep(self, end: End, error: StoreUnavailableError) -> None:
        number = end.command.id
        with self._lock:
            self._kept[number] = end
        _LOG.warning("end_postponed", extra={"command_id": number, "error": str(error)})
        raise UnrecordedEndError(
            f"command {number} has ended ({end.record.reason.value}), but that could not be recorded: {error}",
            end.result,
        ) from error

    def _drop(self, number: int) -> None:
        with self._lock:
            self._kept.pop(number, None)


def is_claim_of(row: Command, command: Command) -> bool:
    """Whether the row still belongs to the attempt and the owner that ``command`` was claimed for."""
    return (row.attempt, row.owner) == (command.attempt, command.owner)
