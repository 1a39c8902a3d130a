"""Records the ends of commands in the store, which may be locked, full or unreachable for any time.

    ended --record--> in the store
       |                 ^
       +--kept here------+ retry (repeated until it succeeds)

A kept end is also in the command's run directory: if this process dies first, recovery reads it there.
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
from debug_server.runner.running_command import RunningCommand
from debug_server.runner.spec import CommandResult

_LOG = logging.getLogger(__name__)
STORE_SECONDS = 60.0  # how long the end of a command is retried for a caller that waits
STORE_RETRY = 0.25
_SHORT_RETRY = 0.01


class UnrecordedEndError(StoreUnavailableError):
    """The command has ended as in ``result``, but the end is not in the store yet; it is recorded later."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a command, and what is left to do when it is in the store."""

    command: Command
    record: ExitRecord
    log_path: Path
    handle: Mapping[str, Any] | None = None  # of a command whose start was not recorded
    running: RunningCommand | None = None  # None for a command that never started

    @property
    def result(self) -> CommandResult:
        """The result that the caller of the command gets."""
        status = status_for(self.record.reason)
        return CommandResult(self.command.id, status, self.record.exit_code, self.log_path, exit=self.record)


class EndRecorder:
    """Records ends, and keeps those that could not be recorded; safe to share between threads."""

    def __init__(self, store: CommandStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: dict[int, End] = {}

    @property
    def unrecorded(self) -> list[int]:
        """The commands whose end the store does not have yet."""
        with self._lock:
            return sorted(self._kept)

    def record(self, end: End, *, seconds: float) -> None:
        """Set the command's terminal state; UnrecordedEndError if the store is still unavailable after ``seconds``."""
        deadline = time.monotonic() + max(seconds, STORE_RETRY)  # on a full disk the first try frees the reserve
        while True:
            try:
                self._finish(end)
            except StoreUnavailableError as error:
                if time.monotonic() >= deadline:
                    raise self._postpone(end, error) from error
                time.sleep(_SHORT_RETRY if seconds < STORE_RETRY else STORE_RETRY)
            else:
                return

    def retry(self, commands: Collection[int]) -> Iterator[End]:
        """Record the kept ends of these commands; StoreUnavailableError if the store is unavailable."""
        for number in commands:
            if (end := self._kept.get(number)) is None:
                continue
            try:
                self._finish(end)
            except StoreUnavailableError:
                raise
            except MetadataError as error:  # another owner has the row and the run directory now
                _LOG.warning("end_refused", extra={"command_id": number, "error": str(error)})
                self._drop(number)
            else:
                self._drop(number)
                yield end

    def leave(self) -> None:
        """Forget the kept ends: another process records them from the run directories."""
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
            # The connection may have broken after an earlier try was committed: then the row already has this end.
            row = self._store.commands.get(command.id)
            if not (is_claim_of(row, command) and row.exit == end.record):
                raise

    def _postpone(self, end: End, error: StoreUnavailableError) -> UnrecordedEndError:
        """Keep the end for ``retry``; returns the error for the caller."""
        number = end.command.id
        with self._lock:
            self._kept[number] = end
        _LOG.warning("end_postponed", extra={"command_id": number, "error": str(error)})
        return UnrecordedEndError(
            f"command {number} has ended ({end.record.reason.value}), but that could not be recorded: {error}",
            end.result,
        )

    def _drop(self, number: int) -> None:
        with self._lock:
            self._kept.pop(number, None)


def is_claim_of(row: Command, command: Command) -> bool:
    """Whether the row still has the attempt and the owner of ``command``."""
    return (row.attempt, row.owner) == (command.attempt, command.owner)
